// Registering a webhook, and changing one: a form of what the API's document says that there is, a look at what would change, and the change of the
// version that was looked at and of no other.
import { fields } from './fields.js';
import { foreign, h } from './dom.js';
import { Fault, ask, get, part } from './api.js';
import { confirm, showSecret } from './dialogs.js';

// groups are the parts of the form: those of their fields that most want are seen at once, in this order, and the others behind a word.
const groups = [
  { name: 'Where to', of: /^(queue|url|name|enabled)$/, first: ['queue', 'url', 'name', 'enabled'] },
  { name: 'What it is sent', of: /^(format|http_version|timeout|headers)$/, first: ['format', 'http_version', 'timeout', 'headers'] },
  { name: 'What it takes', of: /^filter\./, first: ['filter.types', 'filter.sources', 'filter.subjects', 'filter.fields'] },
  { name: 'When it fails', of: /^policy\./, first: ['policy.preset', 'policy.max_attempts', 'policy.max_age', 'policy.rules'], then: ['policy.backoff.initial', 'policy.backoff.factor', 'policy.backoff.max', 'policy.backoff.delays', 'policy.backoff.jitter'], more: 'Delays, waits and steering' },
  { name: 'How fast', of: /^flow\./, first: ['flow.concurrency', 'flow.rate', 'flow.burst', 'flow.auto_disable_after'], more: 'Window and breaker' },
  { name: 'How it is signed', of: /^(secret|signing_key|signatures\..*)$/, first: [], then: ['signatures.hmac.preset', 'signatures.hmac.secret', 'signatures.v1a', 'signatures.http.algorithm', 'signatures.http.components', 'signatures.http.key_id', 'signatures.hmac.header', 'signatures.hmac.signed', 'signatures.hmac.algorithm', 'signatures.hmac.encoding', 'signatures.hmac.prefix', 'signatures.hmac.timestamp_prefix'], more: 'Beside Standard Webhooks: GitHub, Stripe, Shopify, Ed25519, RFC 9421' },
  { name: 'What the receiver is told of who sends', of: /^auth\./, first: [], then: ['auth.oauth2.token_url', 'auth.oauth2.client_id', 'auth.oauth2.client_secret', 'auth.oauth2.scopes', 'auth.oauth2.audience'], more: 'OAuth 2.0 client credentials' },
  { name: 'How the connection is made', of: /^tls\./, first: [], then: ['tls.client_certificate', 'tls.client_key', 'tls.ca'], more: 'Client certificate, authorities, TLS' },
];

// words are the labels and hints that say more than the document's names.
const words = {
  queue: ['Queue'], url: ['URL', 'https, without user and password'], name: ['Name', 'For people.'], enabled: ['Enabled', 'One that is not is sent nothing; its messages are held.'], http_version: ['HTTP'], timeout: ['Timeout', '1s to 10m'],
  format: ['Format', 'raw is the message as it is; the others are CloudEvents.'], headers: ['Headers to set', 'One a line, such as X-Api-Key: abc. No answer shows their values.'],
  'filter.types': ['Event types', 'One a line; * stands for any characters; none for all.'], 'filter.sources': ['Sources', 'One a line.'], 'filter.subjects': ['Subjects', 'One a line.'], 'filter.fields': ['Conditions on the body', '[{"field":"data.total","op":"gt","value":100}]'],
  'policy.preset': ['Policy', 'standard, once, realtime, moderate, tolerant, short or patient'], 'policy.max_attempts': ['Attempts'], 'policy.max_age': ['Within'], 'policy.rules': ['Rules', '[{"match":"409","action":"complete"}]'],
  'policy.backoff.initial': ['First delay'], 'policy.backoff.factor': ['Times', 'What each further delay is longer by.'], 'policy.backoff.max': ['Longest delay'], 'policy.backoff.delays': ['Delays', 'One a line, in the place of the three before.'],
  'policy.allow_steering': ['Steering', 'Whether the answer\'s header pushlease-decision may decide.'], 'policy.retry_after_cap': ['Retry-After, at most'], 'policy.pause_cap': ['Pause, at most'], 'policy.max_waits': ['Waits that are not counted'],
  'flow.concurrency': ['At once'], 'flow.rate': ['A second', '0 is no limit.'], 'flow.burst': ['Burst'], 'flow.auto_disable_after': ['Disabled after', 'Without a 2xx; or never.'], 'auth.oauth2.scopes': ['Scopes', 'One a line.'], 'auth.oauth2.token_url': ['Token URL'], 'auth.oauth2.private_key_jwt.key': ['Private key, in the place of the secret'], 'auth.oauth2.private_key_jwt.kid': ['Its id'], 'policy.backoff.jitter': ['Jitter'], 'tls.ca': ['Authorities'],
  'auth.oauth2.params': ['Further parameters', 'One a line, such as resource: https://example.com. No answer shows their values.'],
};

const label = (f) => words[f.at]?.[0] ?? (f.at.split('.').slice(1).join(': ').replace('oauth2: ', '').replace('hmac:', 'HMAC:').replace('http:', 'RFC 9421:') || f.at).replaceAll('_', ' ').replace(/^./, (l) => l.toUpperCase());
const hint = (f) => words[f.at]?.[1] ?? f.hint;

const valueAt = (w, at) => at.split('.').reduce((o, k) => o?.[k], w);

// written is a value as the form has it. What is secret is shown by no answer.
function written(f, value) {
  if (value === undefined || value === null || f.secret) return '';
  if (f.kind === 'list') return value.join('\n');
  if (f.kind === 'json') return value.length ? JSON.stringify(value, null, 1) : '';
  return String(value);
}

// meant is the value that a text of the form stands for; an empty one stands for the default.
function meant(f, text) {
  const t = text.trim();
  if (!t) return null;
  if (f.kind === 'number') return Number.isNaN(Number(t)) ? t : Number(t); // what is no number the API refuses, and says why
  if (f.kind === 'list') return t.split('\n').map((s) => s.trim()).filter(Boolean);
  if (f.kind === 'json') return JSON.parse(t);
  return f.kind === 'flag' ? t === 'true' : t;
}

export function webhookForm(at, c) {
  const id = at.id, path = `/webhooks/${part(id)}`, back = id ? c.href('webhooks', id) : '#/webhooks';
  const once = [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, '0')).join(''); // asked twice, one is made
  const view = {
    title: id ? 'Change the webhook' : 'Register a webhook', above: [back, id ? c.called(id) : 'Webhooks'], api: id ? path : '/webhooks', every: 3600000, own: true, wrong: [],
    async load() {
      const w = view.data ?? (id ? await get(path) : {}); // what is typed is about what was read first
      if (id) { c.names.set(id, w.name); view.above[1] = w.name || id; }
      return w;
    },
    draw: (w) => h('form', { class: 'register', novalidate: true, on: { submit: (e) => { e.preventDefault(); sendOnce(view, c, e.currentTarget, w); } } },
      other(view.wrong).map((e) => h('p', { class: 'wrong', role: 'alert' }, `${e.field} ${e.problem}: ${e.cure}.`)),
      groups.map((g) => group(g, w, view)),
      h('div', { class: 'buttons left' }, h('button', { type: 'submit', class: 'main' }, id ? 'See what would change' : 'Register'), h('a', { class: 'button', href: back }, 'Leave'))),
  };
  return Object.assign(view, { id, path, once });
}

const of = (e, f) => e.field === f.at || e.field.startsWith(`${f.at}.`) || e.field.startsWith(`${f.at}[`);
const other = (wrong) => wrong.filter((e) => !fields.some((f) => of(e, f)));

function group(g, w, view) {
  const all = fields.filter((f) => g.of.test(f.at) && !(f.new && view.id)), named = (list = []) => list.map((at) => all.find((f) => f.at === at)).filter(Boolean);
  const first = named(g.first), then = named(g.then), rest = then.concat(all.filter((f) => !first.includes(f) && !then.includes(f)));
  if (!all.length) return null;
  return h('fieldset', { class: 'card' }, h('legend', null, g.name), first.length > 0 && h('div', { class: 'pair' }, first.map((f) => field(f, w, view))),
    rest.length > 0 && h('details', { open: !g.first.length && rest.some((f) => valueAt(w, f.at) !== undefined) }, h('summary', null, g.more ?? 'More'), h('div', { class: 'pair' }, rest.map((f) => field(f, w, view)))));
}

function field(f, w, view) {
  const value = written(f, valueAt(w, f.at)), bad = view.wrong.filter((e) => of(e, f)), name = `of-${f.at}`, set = f.secret && f.kind !== 'pairs' && valueAt(w, f.at) !== undefined;
  const attrs = { id: name, name: f.at, required: f.need, 'aria-invalid': bad.length ? 'true' : null, 'aria-describedby': `${name}-note`, autocomplete: 'off', spellcheck: 'false', placeholder: set ? 'is set; what is typed takes its place' : null };
  const long = ['list', 'json', 'pairs', 'block'].includes(f.kind);
  return h('div', { class: f.kind === 'json' || f.kind === 'pairs' || f.kind === 'block' ? 'whole' : null }, h('label', { for: name }, label(f)),
    f.choices ? h('select', attrs, [...(view.id && f.at === 'enabled' ? [] : ['']), ...f.choices].map((v) => h('option', { value: v, selected: value === v }, v === '' ? '–' : f.kind === 'flag' ? { true: 'yes', false: 'no' }[v] : v)))
      : long ? h('textarea', { ...attrs, rows: Math.min(8, Math.max(2, value.split('\n').length)) }, value)
        : h('input', { ...attrs, value, type: f.secret ? 'password' : null, inputmode: f.kind === 'number' ? 'decimal' : null }),
    h('div', { id: `${name}-note` }, hint(f) && h('p', { class: 'dim hint' }, hint(f)), bad.map((e) => h('p', { class: 'wrong' }, `${e.field === f.at ? '' : `${e.field} `}${e.problem}: ${e.cure}.`))),
    f.kind === 'pairs' ? Object.keys(valueAt(w, f.at) ?? {}).map((n) => away(f, n)) : set && away(f, ''));
}

// away takes something away whose value is shown to nobody.
const away = (f, name) => h('label', { class: 'tick' }, h('input', { type: 'checkbox', name: 'take-away', 'data-of': f.at, value: name }), 'Take away ', name && foreign(name));

// put sets a value in a patch. What is below something that the patch ends is ended with it.
function put(body, at, value) {
  const way = at.split('.'), last = way.pop();
  const where = way.reduce((o, k) => (o === null ? null : o[k] === undefined ? o[k] = {} : o[k]), body);
  if (where !== null) where[last] = value;
}

// changes are what the form says otherwise than the webhook: what to send, and in words.
function changes(form, w) {
  const body = {}, words = [], wrong = [], left = new Set();
  for (const f of fields) {
    const input = form.elements[f.at], before = valueAt(w, f.at), text = input?.value.trim() ?? '';
    const gone = [...form.querySelectorAll('[name="take-away"]:checked')].filter((box) => box.dataset.of === f.at).map((box) => box.value);
    if (f.kind === 'pairs') pairs(f, text, gone, before ?? {}, { body, words, wrong, left });
    else if (f.secret) {
      if (text || gone.length) { put(body, f.at, text || null); words.push([label(f), before === undefined ? 'none' : 'is set', text ? 'another value' : 'taken away']); }
      if (text || before !== undefined && !gone.length) left.add(f.at);
    } else {
      const was = written(f, before).trim();
      if (input ? text : was) left.add(f.at);
      if (!input || text === was) continue;
      try { put(body, f.at, meant(f, text)); } catch (e) { wrong.push({ field: f.at, problem: 'is no JSON', cure: e.message }); continue; }
      words.push([label(f), was || 'the default', text || 'the default']);
    }
  }
  endEmpty(body, w, left);
  return { body, words, wrong };
}

function pairs(f, text, gone, before, { body, words, wrong, left }) {
  const set = {};
  for (const line of text.split('\n').filter((l) => l.trim())) {
    const [name, ...value] = line.split(':');
    if (!value.length) wrong.push({ field: f.at, problem: 'has a line without a colon', cure: 'write Name: value' });
    set[name.trim()] = value.join(':').trim();
    words.push([f.at === 'headers' ? 'Header' : label(f), name.trim(), 'another value']);
  }
  for (const name of gone) {
    set[name] = null;
    words.push([f.at === 'headers' ? 'Header' : label(f), name, 'taken away']);
  }
  if (Object.keys(set).length) put(body, f.at, set);
  if (Object.keys({ ...before, ...set }).some((name) => set[name] !== null)) left.add(f.at);
}

// endEmpty ends an object of which the form has left nothing, such as an OAuth 2.0 client.
function endEmpty(body, w, left) {
  const objects = new Set(fields.flatMap((f) => f.at.split('.').map((_, i, way) => way.slice(0, i).join('.')).filter(Boolean)));
  for (const at of [...objects].sort((a, b) => a.length - b.length)) {
    const [had, has] = [valueAt(w, at), valueAt(body, at)];
    if (had && has && ![...left].some((l) => l.startsWith(`${at}.`))) put(body, at, null);
  }
}

// sendOnce lets a second click do nothing while the first one is under way.
async function sendOnce(view, c, form, w) {
  if (view.sending) return;
  view.sending = true;
  try { await send(view, c, form, w); } finally { view.sending = false; }
}

async function send(view, c, form, w) {
  const { body, words, wrong } = changes(form, w);
  view.wrong = wrong;
  c.redraw();
  if (wrong.length) { toWrong(form); return; }
  if (view.id && !words.length) { c.say('Nothing is changed.'); return; }
  if (view.id && !await confirm({ title: 'Change the webhook?', ok: 'Change it', body: [h('div', { class: 'scroll' }, h('table', { class: 'diff' }, h('thead', null, h('tr', null, ['What', 'Now', 'Then'].map((t) => h('th', { scope: 'col' }, t)))),
    h('tbody', null, words.map(([what, was, will]) => h('tr', null, h('th', { scope: 'row' }, what), h('td', null, was), h('td', null, will))))))] })) return;
  try {
    const answer = view.id
      ? await ask('PATCH', view.path, { body: JSON.stringify(body), type: 'application/merge-patch+json', headers: w.etag ? { 'If-Match': w.etag } : {} })
      : await ask('POST', '/webhooks', { body, headers: { 'Idempotency-Key': view.once } });
    if (answer.secret) await showSecret(answer.secret);
    const warnings = (answer.warnings ?? []).filter((text) => !/ null, which has set /.test(text)); // whoever empties a field means that
    if (warnings.length) await confirm({ title: 'It is done, with a warning', body: warnings.map((text) => h('p', null, text)), ok: 'Close', only: true });
    c.names.set(answer.id, answer.name);
    c.say(view.id ? 'The webhook is changed.' : 'The webhook is registered.');
    c.go(c.href('webhooks', answer.id));
  } catch (e) {
    if (!(e instanceof Fault)) throw e;
    if (e.problem.type === 'urn:pushlease:problem:idempotency-key-reused') { await registeredBefore(c, e.message); return; }
    view.wrong = (e.problem.errors ?? []).filter(() => e.status === 400);
    c.redraw();
    if (view.wrong.length) toWrong(form);
    else await confirm({ title: e.status === 412 ? 'Somebody has changed it meanwhile' : e.problem.title ?? 'That did not work', body: [h('p', null, e.status === 412 ? 'Nothing was changed. Leave this form and open it again to see what the webhook says now.' : e.message), e.cures.map((x) => h('p', { class: 'dim' }, x))], ok: 'Close', only: true });
  }
}

// toWrong leads to the first field that is wrong, also where it was folded away.
function toWrong(form) {
  const field = form.querySelector('[aria-invalid=true]'), folded = field?.closest('details');
  if (folded) folded.open = true;
  field?.focus();
}

// registeredBefore says what a form finds that was changed after the answer to its first request was lost.
async function registeredBefore(c, which) {
  await confirm({ title: 'It is registered already', ok: 'To the webhooks', only: true, body: [h('p', null, 'An earlier try has registered the webhook as the form was then; its answer was lost, and with it the secret. Find it among the webhooks, rotate its secret, which shows the new one, and change there what you changed here.'), h('p', { class: 'dim' }, foreign(which))] });
  c.go('#/webhooks');
}
