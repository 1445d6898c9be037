// A program of a user, by two more clients that are made of the document: each changes one field of a webhook, and publishes.
import * as orval from "./orval.js";
import * as hey from "./hey/index.js";
import { client } from "./hey/client.gen.js";

const [base, token] = process.argv.slice(2);
const headers = { authorization: `Bearer ${token}` };
client.setConfig({ baseUrl: base, headers, throwOnError: true });

function same(made: hey.Webhook | orval.Webhook, now: hey.Webhook | orval.Webhook, what: string): void {
  for (const field of ["queue", "url", "format", "timeout", "policy", "filter", "flow", "enabled"] as const) {
    if (JSON.stringify(made[field]) !== JSON.stringify(now[field])) throw new Error(`${what}: ${field} was reset: ${JSON.stringify(now[field])}`);
  }
  if (now.name !== what) throw new Error(`${what}: the name is ${now.name}`);
}

const create = {
  queue: "orders", url: "https://example.com/hook", format: "cloudevents-structured" as const, timeout: "45s",
  flow: { rate: 50, concurrency: 3 }, policy: { preset: "patient" as const, max_attempts: 4 }, filter: { types: ["com.example.*"] },
};

const made = await hey.createWebhook<true>({ body: create });
const changed = await hey.patchWebhook<true>({ path: { id: made.data.id }, body: { name: "hey-api" } });
same(made.data, changed.data, "hey-api");
const sent = await hey.publish<true>({ path: { queue: "orders" }, body: { order: 1 } });
if (sent.response.status !== 202 || !sent.data.message_id) throw new Error("hey-api: a publish");
const octets = await hey.publish<true>({ path: { queue: "orders" }, body: new Blob(["\u0000\u0001"]), bodySerializer: null, headers: { "Content-Type": "application/octet-stream" } as Record<string, string> });
if (octets.response.status !== 202) throw new Error("hey-api: octets");
const none = await hey.getWebhook({ path: { id: "wh_none" }, throwOnError: false });
if (none.error?.errors?.[0]?.field !== "id") throw new Error("hey-api: a problem");
const jobs = await hey.startReplayJob<true>({ body: { queue: "orders", dry_run: true } });
if (jobs.data.state !== "dry_run") throw new Error("hey-api: a dry run");

const second = await orval.createWebhook({ ...create, queue: "returns" }, { headers });
if (second.status !== 201) throw new Error(`orval: create is ${second.status}`);
const then = await orval.patchWebhook(second.data.id, { name: "orval" }, { headers });
if (then.status !== 200) throw new Error(`orval: patch is ${then.status}`);
same(second.data, then.data, "orval");
const json = await orval.publish("orders", { order: 2 }, undefined, { headers: { ...headers, "content-type": "application/json" } });
if (json.status !== 202) throw new Error(`orval: publish is ${json.status}`);
const missing = await orval.getWebhook("wh_none", { headers });
if (missing.status !== 404 || missing.data.errors?.[0]?.field !== "id") throw new Error("orval: a problem");
const dry = await orval.startReplayJob({ queue: "orders", dry_run: true }, { headers });
if (dry.status !== 200 || dry.data.state !== "dry_run") throw new Error(`orval: a dry run is ${dry.status}`);
