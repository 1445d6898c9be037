// A program of a user: it does through the types that are made of the document what users
// do, over the address and token that it is given, and fails where something is not so.
import type { components, paths } from "./schema.js";

const [base, token] = process.argv.slice(2);
type Method = "get" | "post" | "patch" | "delete";

async function call<T>(method: Method, path: keyof paths | string, status: number, body?: unknown, type = "application/json"): Promise<T> {
  const answer = await fetch(base + path, {
    method: method.toUpperCase(),
    headers: { authorization: `Bearer ${token}`, ...(body === undefined ? {} : { "content-type": type }) },
    body: body === undefined ? undefined : type === "application/json" ? JSON.stringify(body) : (body as string),
  });
  const text = await answer.text();
  if (answer.status !== status) throw new Error(`${method} ${path} is ${answer.status}, want ${status}: ${text}`);
  const violations = answer.headers.get("sl-violations");
  if (violations) throw new Error(`${method} ${path} is not what the document says: ${violations}`);
  return (text ? JSON.parse(text) : undefined) as T;
}

function want(ok: boolean, what: string): void {
  if (!ok) throw new Error(what);
}

type Schemas = components["schemas"];

// A webhook of which only the name is changed stays as it is.
const create: Schemas["WebhookCreate"] = {
  queue: "orders", url: "https://example.com/hook", format: "cloudevents-structured", timeout: "45s",
  flow: { rate: 50, concurrency: 3 }, policy: { preset: "patient", max_attempts: 4 }, filter: { types: ["com.example.*"] },
};
const made = await call<Schemas["Webhook"]>("post", "/api/v1/webhooks", 201, create);
const change: Schemas["WebhookPatch"] = { name: "billing" };
const changed = await call<Schemas["Webhook"]>("patch", `/api/v1/webhooks/${made.id}`, 200, change);
const faster: Schemas["WebhookPatch"] = { flow: { concurrency: 5 } };
const now = await call<Schemas["Webhook"]>("patch", `/api/v1/webhooks/${made.id}`, 200, faster);
want(changed.name === "billing" && now.flow.concurrency === 5, "what was changed is not");
for (const field of ["format", "timeout", "policy", "filter", "url", "enabled"] as const) {
  want(JSON.stringify(now[field]) === JSON.stringify(made[field]), `${field} was reset: ${JSON.stringify(now[field])}`);
}
want(now.flow.rate === 50, `rate was reset: ${now.flow.rate}`);

// JSON and octets are published.
for (const [body, type] of [[{ order: 1 }, "application/json"], ["\u0000\u0001bytes", "application/octet-stream"], ["text", "text/plain"]] as const) {
  const sent = await call<Schemas["Published"]>("post", "/api/v1/queues/orders/messages", 202, body, type);
  want(sent.queue === "orders" && Boolean(sent.message_id), "the answer to a publish");
  await call<Schemas["Message"]>("get", `/api/v1/messages/${sent.message_id}`, 200);
}
await call<Schemas["Match"]>("post", "/api/v1/queues/orders/match", 200, { type: "x" });

// Lists, dead letters, and what is done with many of them.
await call<Schemas["WebhookList"]>("get", "/api/v1/webhooks?limit=5", 200);
await call<Schemas["QueueList"]>("get", "/api/v1/queues", 200);
const dead = await call<Schemas["DeadLetterList"]>("get", "/api/v1/dead-letters?status=waiting", 200);
want(dead.data.length === 3, "three dead letters");
const request: Schemas["ReplayRequest"] = { queue: "orders", dry_run: true };
const dry = await call<Schemas["ReplayJob"]>("post", "/api/v1/replays", 200, request);
want(dry.state === "dry_run" && dry.matched === 3, "a dry run");
const job = await call<Schemas["ReplayJob"]>("post", "/api/v1/replays", 202, { queue: "orders", limit: 1 });
want(Boolean(job.id), "the job's id");
await call<Schemas["ReplayJob"]>("get", `/api/v1/replays/${job.id}`, 200);
await call<Schemas["ReplayJobList"]>("get", "/api/v1/replays", 200);
const purge: Schemas["PurgeRequest"] = { all: true, dry_run: true };
const purged = await call<Schemas["Purged"]>("post", "/api/v1/dead-letters/purge", 200, purge);
want(purged.dry_run && purged.matched === 3 && purged.purged === 0, "a purge's dry run");

// A problem names the field and the cure.
const problem = await call<Schemas["Problem"]>("get", "/api/v1/webhooks/wh_none", 404);
want(problem.errors?.[0].field === "id" && problem.errors[0].cure !== "", "a problem");
await call<undefined>("delete", `/api/v1/webhooks/${made.id}`, 204);
