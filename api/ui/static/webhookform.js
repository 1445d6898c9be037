// Registering a webhook, and changing one: a form of what the API takes, a look at what would change, and the change of the
// version that was looked at and of no other.
import { foreign, h } from './dom.js';
import { Fault, ask, get, part } from './api.js';
import { confirm, showSecret } from './dialogs.js';

// fields are what the form asks for. What is left empty has its default. A text is of these kinds: text, number, list (one a line), json.
const fields = [
  { group: 'Where to', at: 'queue', label: 'Queue', only: 'new', need: true },
  { group: 'Where to', at: 'url', label: 'URL', hint: 'https, without user and password', need: true },
  { group: 'Where to', at: 'name', label: 'Name', hint: 'for people' },
  { group: 'What it is sent', at: 'format', label: 'Format', choices: ['raw', 'cloudevents-structured', 'cloudevents-binary'] },
  { group: 'What it is sent', at: 'http_version', label: 'HTTP', choices: ['auto', '1.1'] },
  { group: 'What it is sent', at: 'timeout', label: 'Timeout', hint: '1s to 10m' },
  { group: 'What it takes', at: 'filter.types', label: 'Event types', kind: 'list', hint: 'one a line; * stands for any characters; none for all' },
  { group: 'What it takes', at: 'filter.sources', label: 'Sources', kind: 'list' },
  { group: 'What it takes', at: 'filter.subjects', label: 'Subjects', kind: 'list' },
  { group: 'What it takes', at: 'filter.fields', label: 'Conditions on the body', kind: 'json', hint: '[{"field":"data.total","op":"gt","value":100}]' },
  { group: 'When it fails', at: 'policy.preset', label: 'Policy', hint: 'standard, once, realtime, moderate, tolerant, short or patient' },
  { group: 'When it fails', at: 'policy.max_attempts', label: 'Attempts', kind: 'number' },
  { group: 'When it fails', at: 'policy.max_age', label: 'Within', hint: 'such as 24h' },
  { group: 'When it fails', at: 'policy.backoff', label: 'Delays', kind: 'json' },
  { group: 'When it fails', at: 'policy.rules', label: 'Rules', kind: 'json', hint: '[{"match":"409","action":"complete"}]' },
  { group: 'How fast', at: 'flow.concurrency', label: 'At once', kind: 'number' },
  { group: 'How fast', at: 'flow.rate', label: 'A second', kind: 'number', hint: '0 is no limit' },
  { group: 'How fast', at: 'flow.burst', label: 'Burst', kind: 'number' },
  { group: 'How fast', at: 'flow.auto_disable_after', label: 'Disabled after', hint: 'without a 2xx; or never' },
];

const valueAt = (w, at) => at.split('.').reduce((o, k) => o?.[k], w);

// written is a value as the form has it.
function written(f, value) {
  if (value === undefined || value === null) return '';
  if (f.kind === 'list') return value.join('\n');
  if (f.kind === 'json') return Array.isArray(value) && !value.length ? '' : JSON.stringify(value, null, 1);
  return String(value);
}

// meant is the value that a text of the form stands for; an empty one stands for the default.
function meant(f, text, before) {
  const t = text.trim();
  if (!t) return null;
  if (f.kind === 'number') return Number.isNaN(Number(t)) ? t : Number(t); // what is no number the API refuses, and says why
  if (f.kind === 'list') return t.split('\n').map((s) => s.trim()).filter(Boolean);
  if (f.kind !== 'json') return t;
  const value = JSON.parse(t);
  if (before && typeof before === 'object' && !Array.isArray(before) && value && typeof value === 'object' && !Array.isArray(value)) {
    for (const gone of Object.keys(before)) if (!(gone in value)) value[gone] = null; // a merge patch keeps what it does not name
  }
  return value;
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
      [...new Set(fields.map((f) => f.group))].map((g) => h('fieldset', { class: 'card' }, h('legend', null, g), h('div', { class: 'pair' }, fields.filter((f) => f.group === g && !(f.only && id)).map((f) => field(f, w, view))), g === 'What it is sent' && headers(w, view))),
      h('div', { class: 'buttons left' }, h('button', { type: 'submit', class: 'main' }, id ? 'See what would change' : 'Register'), h('a', { class: 'button', href: back }, 'Leave'))),
  };
  return Object.assign(view, { id, path, once });
}

const known = (e) => fields.some((f) => of(e, f)) || e.field.startsWith('headers');
const of = (e, f) => e.field === f.at || e.field.startsWith(`${f.at}.`) || e.field.startsWith(`${f.at}[`);
const other = (wrong) => wrong.filter((e) => !known(e));

function field(f, w, view) {
  const value = written(f, valueAt(w, f.at)), bad = view.wrong.filter((e) => of(e, f)), name = `of-${f.at}`;
  const attrs = { id: name, name: f.at, required: f.need, 'aria-invalid': bad.length ? 'true' : null, 'aria-describedby': `${name}-note`, autocomplete: 'off', spellcheck: 'false' };
  return h('div', { class: f.kind === 'json' ? 'whole' : null }, h('label', { for: name }, f.label),
    f.choices ? h('select', attrs, f.choices.map((v) => h('option', { value: v, selected: value === v }, v)))
      : f.kind === 'list' || f.kind === 'json' ? h('textarea', { ...attrs, rows: Math.min(8, Math.max(2, value.split('\n').length)) }, value)
        : h('input', { ...attrs, value, inputmode: f.kind === 'number' ? 'decimal' : null }),
    h('div', { id: `${name}-note` }, f.hint && h('p', { class: 'dim hint' }, f.hint), bad.map((e) => h('p', { class: 'wrong' }, `${e.problem}: ${e.cure}.`))));
}

// headers are set and taken away; the values of those that are there are shown to nobody.
function headers(w, view) {
  const bad = view.wrong.filter((e) => e.field.startsWith('headers'));
  return h('div', null, h('label', { for: 'of-headers' }, 'Headers to set'), h('textarea', { id: 'of-headers', name: 'headers', rows: 2, spellcheck: 'false', 'aria-invalid': bad.length ? 'true' : null, 'aria-describedby': 'of-headers-note' }),
    h('div', { id: 'of-headers-note' }, h('p', { class: 'dim hint' }, 'One a line, such as X-Api-Key: abc. No answer shows their values.'), bad.map((e) => h('p', { class: 'wrong' }, `${e.field} ${e.problem}: ${e.cure}.`))),
    Object.keys(w.headers ?? {}).map((n) => h('label', { class: 'tick' }, h('input', { type: 'checkbox', name: 'take-away', value: n }), 'Take away ', foreign(n))));
}

// changes are what the form says otherwise than the webhook: what to send, and in words.
function changes(form, w) {
  const body = {}, words = [], wrong = [];
  for (const f of fields) {
    const input = form.elements[f.at], before = valueAt(w, f.at), was = written(f, before);
    if (!input || input.value.trim() === was.trim()) continue;
    let value;
    try { value = meant(f, input.value, before); } catch (e) { wrong.push({ field: f.at, problem: 'is no JSON', cure: e.message }); continue; }
    const way = f.at.split('.'), last = way.pop();
    way.reduce((o, k) => o[k] ??= {}, body)[last] = value;
    words.push([f.label, was || 'the default', input.value.trim() || 'the default']);
  }
  const set = {};
  for (const line of form.elements.headers.value.split('\n').filter((l) => l.trim())) {
    const [name, ...value] = line.split(':');
    if (!value.length) wrong.push({ field: 'headers', problem: 'has a line without a colon', cure: 'write Name: value' });
    set[name.trim()] = value.join(':').trim();
    words.push(['Header', name.trim(), 'another value']);
  }
  for (const box of form.querySelectorAll('[name="take-away"]:checked')) {
    set[box.value] = null;
    words.push(['Header', box.value, 'taken away']);
  }
  if (Object.keys(set).length) body.headers = set;
  return { body, words, wrong };
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
  if (wrong.length) return;
  if (view.id && !words.length) { c.say('Nothing is changed.'); return; }
  if (view.id && !await confirm({ title: 'Change the webhook?', ok: 'Change it', body: [h('div', { class: 'scroll' }, h('table', { class: 'diff' }, h('thead', null, h('tr', null, ['What', 'Now', 'Then'].map((t) => h('th', { scope: 'col' }, t)))),
    h('tbody', null, words.map(([what, was, will]) => h('tr', null, h('th', { scope: 'row' }, what), h('td', null, was), h('td', null, will))))))] })) return;
  try {
    const answer = view.id
      ? await ask('PATCH', view.path, { body: JSON.stringify(body), type: 'application/merge-patch+json', headers: w.etag ? { 'If-Match': w.etag } : {} })
      : await ask('POST', '/webhooks', { body, headers: { 'Idempotency-Key': view.once } });
    if (answer.secret) await showSecret(answer.secret);
    if (answer.warnings?.length) await confirm({ title: 'It is done, with a warning', body: answer.warnings.map((text) => h('p', null, text)), ok: 'Close', only: true });
    c.names.set(answer.id, answer.name);
    c.say(view.id ? 'The webhook is changed.' : 'The webhook is registered.');
    c.go(c.href('webhooks', answer.id));
  } catch (e) {
    if (!(e instanceof Fault)) throw e;
    if (e.problem.type === 'urn:pushlease:problem:idempotency-key-reused') { await registeredBefore(c, e.message); return; }
    view.wrong = (e.problem.errors ?? []).filter(() => e.status === 400);
    c.redraw();
    if (view.wrong.length) form.querySelector('[aria-invalid=true]')?.focus();
    else await confirm({ title: e.status === 412 ? 'Somebody has changed it meanwhile' : e.problem.title ?? 'That did not work', body: [h('p', null, e.status === 412 ? 'Nothing was changed. Leave this form and open it again to see what the webhook says now.' : e.message), e.cures.map((x) => h('p', { class: 'dim' }, x))], ok: 'Close', only: true });
  }
}

// registeredBefore says what a form finds that was changed after the answer to its first request was lost.
async function registeredBefore(c, which) {
  await confirm({ title: 'It is registered already', ok: 'To the webhooks', only: true, body: [h('p', null, 'An earlier try has registered the webhook as the form was then; its answer was lost, and with it the secret. Find it among the webhooks, rotate its secret, which shows the new one, and change there what you changed here.'), h('p', { class: 'dim' }, foreign(which))] });
  c.go('#/webhooks');
}
