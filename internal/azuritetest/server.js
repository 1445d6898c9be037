// Runs Azurite's queue and table services in one process, for the tests of one
// Go test binary. Arguments: the folder Azurite is installed in, the folder to
// keep data in. Prints one line of JSON with the addresses once it listens.
//
// The process ends when its standard input closes, so that it never outlives
// the test binary, however that one ended.
"use strict";
const fs = require("fs");
const path = require("path");

const [installed, data] = process.argv.slice(1);
const load = (name) => require(path.join(installed, "node_modules/azurite/dist/src", name));

const stop = () => {
  fs.rmSync(data, { recursive: true, force: true, maxRetries: 3 });
  process.exit(0);
};
process.stdin.on("close", stop);
process.stdin.resume();

// Azurite flushes each sent message to the disk, which other tests' commits keep
// busy. Nothing here has to outlive a power cut.
fs.fdatasync = (_, done) => process.nextTick(done, null);

load("common/Logger").configLogger(false);
load("common/Telemetry").AzuriteTelemetryClient.init(data, false, {});

// Azurite's database looks through all messages of the account where a query
// names the account first, and sorts all of them anew at each removal, even at
// the removal of none that begins each call. There is one account, so a query
// for a queue names the queue, and what is not there is not removed.
const Database = require(path.join(installed, "node_modules/lokijs"));
const { find } = Database.Resultset.prototype;
Database.Resultset.prototype.find = function (query, firstOnly) {
  if (query && query.queueName !== undefined) {
    const { accountName, ...rest } = query;
    return find.call(this, rest, firstOnly);
  }
  return find.call(this, query, firstOnly);
};
const { remove } = Database.Collection.prototype;
Database.Collection.prototype.remove = function (what) {
  if (!Array.isArray(what) || what.length > 0) return remove.call(this, what);
};

const QueueConfiguration = load("queue/QueueConfiguration").default;
const QueueServer = load("queue/QueueServer").default;
const TableConfiguration = load("table/TableConfiguration").default;
const TableServer = load("table/TableServer").default;
const file = (name) => path.join(data, name);

// Sent messages are stored by as many writers as maxConcurrency says. With
// Azurite's own 1 each takes several turns of a busy event loop before the next
// may begin, and a send waits for longer than the ten seconds a client gives it.
//
// Positional arguments of Azurite 3.35.0. Port 0 picks a free one; data is on
// disk because the in-memory store stalls for many seconds while it collects.
const loose = false, skipApiVersionCheck = true;
const queue = new QueueServer(new QueueConfiguration(
  "127.0.0.1", 0, 120, file("queue.json"), file("queue_extent.json"),
  [{ locationId: "Default", locationPath: file("queue"), maxConcurrency: 32 }],
  false, undefined, false, undefined, loose, skipApiVersionCheck));
const table = new TableServer(new TableConfiguration(
  "127.0.0.1", 0, 120, file("table.json"),
  false, false, undefined, undefined, loose, skipApiVersionCheck));

// Azurite joins request bodies chunk by chunk as strings, which breaks a
// character that is split over two TCP segments. With an encoding set, the
// stream keeps such characters whole. Batches are joined as bytes: leave them.
for (const server of [queue, table]) {
  server.httpServer.prependListener("request", (request) => {
    if (!request.url.includes("$batch")) request.setEncoding("utf8");
  });
}

Promise.all([queue.start(), table.start()]).then(
  () => console.log(JSON.stringify({ queue: queue.getHttpServerAddress(), table: table.getHttpServerAddress() })),
  (err) => { console.error(err); process.exit(1); });
