// Webhooks, and one of them.
import { badge, button, card, empty, facts, foreign, h, longTable, plot, table } from './dom.js';
import { curl, get, part, some } from './api.js';
import { deed, doer } from './audit.js';
import { byWebhook, changes, history, historyCard, percent } from './history.js';
import { answer, fares, number, rate, seconds, span, stateKind, told, took, when } from './words.js';
import { confirm, showSecret } from './dialogs.js';
import { webhookForm } from './webhookform.js';
import { attempted, attemptColumns, attemptKey } from './queues.js';

export function webhookColumns(c) {
  return [
    { head: 'Webhook', cell: (w) => h('a', { href: c.href('webhooks', w.id), title: w.id }, w.name || w.id) },
    { head: 'State', cell: (w) => fares(w) },
    { head: 'Queue', low: true, cell: (w) => h('a', { href: c.href('queues', w.queue) }, w.queue) },
    { head: 'Rate', num: true, cell: (w) => (w.status ? rate(w.status.rate_per_second) : '–') },
    { head: 'In flight', num: true, lower: true, cell: (w) => (w.status ? h('span', { title: `${w.status.window} may be, at most ${w.status.concurrency}` }, `${w.status.in_flight}/${w.status.window}`) : '–') },
    { head: 'p50 / p95', num: true, low: true, cell: (w) => (w.day?.took ? h('span', { title: 'How long POSTs took within a day' }, `${span(seconds(w.day.took.p50))} / ${span(seconds(w.day.took.p95))}`) : none(w)) },
    { head: '24 h', num: true, lower: true, cell: (w) => (w.day ? h('span', { title: `${number(w.day.by[0])} of ${number(w.day.all)} attempts of all instances were answered 2xx within a day` }, percent(w.day.by[0], w.day.all)) : none(w)) },
    { head: 'Delivered', num: true, low: true, cell: (w) => number(w.status?.delivered) },
    { head: 'Failed', num: true, lower: true, cell: (w) => (w.status ? number(w.status.failed + w.status.refused) : '–') },
    { head: 'Last day', lower: true, wide: true, cell: (w) => plot(w.day?.line, 'Deliveries in each hour of the last day') },
  ];
}

// none is where there is no figure of a webhook.
const none = (w) => (w.day === null ? h('span', { class: 'dim', title: 'The history tells the 100 webhooks with the most attempts apart; this one\'s own page has more.' }, '…') : '–');

export function webhooks(at, c) {
  if (at.query.form === 'new' && c.can('admin')) return webhookForm(at, c);
  const view = {
    title: 'Webhooks', api: '/webhooks?limit=500', rows: 200, live: { queue: at.query.queue, type: 'webhook' },
    tools: () => c.can('admin') && h('a', { class: 'button', href: c.href('webhooks', { form: 'new' }) }, 'Register a webhook'),
    async load() {
      const [list, day] = await Promise.all([some('/webhooks', { queue: at.query.queue, contains: at.query.find }, view.rows), byWebhook()]);
      for (const w of list) { w.day = day.of(w.id); c.names.set(w.id, w.name); }
      return list;
    },
    draw: (list) => [
      list.unreadable.map((u) => h('div', { class: 'notice bad' }, h('strong', null, `The registration ${u.id} can't be read. `), u.problem, c.can('admin') && h('div', { class: 'buttons left' }, button('Delete it', () => removeWebhook(c, { id: u.id }), { class: 'danger' })))),
      list.length || at.query.find ? longTable('Webhooks', webhookColumns(c), list, { key: (w) => w.id, view, find: at.query.find, onFind: (find) => c.go(c.href('webhooks', { queue: at.query.queue, find })), look: c.look })
        : empty('No webhook is registered. Register the first one:', curl('POST', '/webhooks', { queue: 'orders', url: 'https://example.com/hook' })),
      h('p', { class: 'foot' }, 'Rates and counters are those of ', h('code', null, c.me.instance ?? 'the process that answers'), ', since it started; p50, p95, the share of 24 hours and the line are those of all instances.'),
    ],
  };
  return view;
}

// removeWebhook deletes a registration; etag is of the one that somebody saw.
async function removeWebhook(c, w, etag) {
  if (!await confirm({ title: 'Delete the webhook?', ok: 'Delete', danger: true, body: [h('p', null, h('strong', null, foreign(w.name || w.id)), w.queue && [' on queue ', foreign(w.queue)], ' gets nothing any more, and its secrets are gone. This can\'t be taken back.'),
    h('p', null, 'If it is the last one of its queue, the messages there are held for the next one, until they would expire.')] })) return;
  if (await c.act('The webhook is deleted.', 'DELETE', `/webhooks/${part(w.id)}`, undefined, etag ? { headers: { 'If-Match': etag } } : {})) c.go('#/webhooks');
}

// switchWebhook enables a webhook, or disables it when somebody confirms that.
export async function switchWebhook(c, w) {
  const name = w.name || w.id;
  if (w.enabled && !await confirm({ title: 'Disable the webhook?', ok: 'Disable', danger: true, body: [h('p', null, 'Nothing is sent to ', h('strong', null, foreign(name)), ' any more. Its messages are held, attempts untouched, until it is enabled; those that would expire become dead letters.')] })) return;
  await c.act(`${name} is ${w.enabled ? 'disabled' : 'enabled'}.`, 'POST', `/webhooks/${part(w.id)}/${w.enabled ? 'disable' : 'enable'}`);
}

export function webhook(at, c) {
  if (at.query.form === 'change' && c.can('admin')) return webhookForm(at, c);
  const id = at.id, path = `/webhooks/${part(id)}`;
  const view = {
    title: id, above: ['#/webhooks', 'Webhooks'], api: path, test: null, samples: [], live: { webhook: id, type: 'attempt,dead_letter,webhook' },
    told(event, data, d) {
      if (event !== 'attempt') return '';
      attempted(d.attempts, data, 20);
      return 'taken';
    },
    async load() {
      const [w, past, attempts, dead, changed] = await Promise.all([get(path), history(at, { webhook: id }), get('/attempts', { webhook: id, limit: 20 }), get('/dead-letters', { webhook: id, limit: 5, status: 'waiting' }), c.can('operate') ? changes(at, id) : []]);
      c.names.set(id, w.name);
      view.title = w.name || id;
      sample(view.samples, w.status);
      return { w, attempts: attempts.data, dead, past, changed };
    },
    tools() {
      const w = view.data?.w;
      if (!w || !c.can('operate')) return null;
      return [button(w.enabled ? 'Disable' : 'Enable', () => switchWebhook(c, w), { class: w.enabled ? '' : 'main', 'data-key': 'e' }),
        button('Send a test', () => test(view, c), { 'data-key': 't', disabled: view.test?.running }),
        c.can('admin') && [h('a', { class: 'button', href: c.href('webhooks', id, { form: 'change' }) }, 'Change'), button('Rotate secret', () => rotate(view, c)), button('Delete', () => removeWebhook(c, w, w.etag), { class: 'danger' })]];
    },
    draw: ({ w, attempts, dead, past, changed }) => [
      view.test && testCard(view, c),
      h('div', { class: 'state' }, fares(w), h('p', null, w.status ? told(w.status.text) : w.enabled ? 'This process has not sent to it since it started.' : 'Nothing is sent to it until it is enabled.', w.status?.until && [' Until ', when(w.status.until), '.'])),
      w.status && tiles(w.status, view.samples),
      !dead.data.length && dead.next_cursor && h('p', { class: 'notice warn' }, 'Whether dead letters of it wait is not known: the newest are all of others. ', h('a', { href: c.href('dead-letters', { webhook: id }) }, 'Look for them')),
      dead.data.length > 0 && h('p', { class: 'notice warn' }, h('a', { href: c.href('dead-letters', { webhook: id }) }, `${dead.data.length}${dead.next_cursor ? ' or more' : ''} dead ${dead.data.length === 1 ? 'letter' : 'letters'}`), ` of it ${dead.data.length === 1 ? 'waits' : 'wait'} to be replayed or deleted.`),
      historyCard(past, (query) => c.href('webhooks', id, query), marks(w, changed)),
      h('div', { class: 'two' }, flowCard(w), config(w, c)),
      card('Last attempts', attempts.length ? table('Last attempts', attemptColumns(c, 'webhook'), attempts, attemptKey) : h('p', { class: 'dim' }, 'There was no attempt yet.')),
      h('p', { class: 'foot' }, 'Rates and counters are those of ', h('code', null, w.status?.instance ?? c.me.instance), ', since it started.'),
    ],
  };
  return view;
}

// sample keeps what the history has not: rate, window and how long POSTs take, from when the page was opened.
function sample(samples, s) {
  if (s) samples.push({ rate: s.rate_per_second, window: s.window, took: s.latency ? seconds(s.latency) : null });
  if (samples.length > 720) samples.shift();
}

// marks are what happened to a webhook: what was changed, by whom, and since when it is as it is.
const marks = (w, changed) => [
  w.status?.breaker.since && w.status.breaker.state !== 'closed' && { at: w.status.breaker.since, text: `breaker ${w.status.breaker.state.replace('_', ' ')}` },
  w.status?.failing_since && { at: w.status.failing_since, text: 'fails since then' },
  w.status?.learned_rate && { at: w.status.learned_rate.since, text: `learned rate ${rate(w.status.learned_rate.per_second)}` },
  ...changed.map((a) => ({ at: a.at, text: `${deed(a)}, ${doer(a)}` })),
].filter(Boolean);

function tiles(s, samples) {
  const line = (of, what) => plot(samples.map((x) => x[of]), `${what}, since this page was opened`);
  const tile = (text, value, kind, picture) => h('div', { class: `tile ${kind ?? ''}` }, h('span', { class: 'name' }, text), h('strong', null, value), picture);
  return h('div', { class: 'tiles' },
    tile('Rate', rate(s.rate_per_second), '', line('rate', 'POSTs a second')),
    tile('In flight, of window', `${s.in_flight} of ${s.window}`, '', line('window', 'Window')), tile('Takes', s.latency ? took(s.latency) : '–', '', line('took', 'How long POSTs take')),
    tile('Delivered', number(s.delivered)), tile('Refused', number(s.refused), s.refused ? 'warn' : ''), tile('Failed', number(s.failed), s.failed ? 'warn' : ''));
}

function flowCard(w) {
  const s = w.status;
  return card('How it is sent to', facts(
    ['Breaker', s && [badge({ closed: 'ok', open: 'bad' }[s.breaker.state] ?? 'wait', s.breaker.state), s.breaker.samples ? ` ${s.breaker.failures} of the last minute's ${s.breaker.samples} POSTs failed` : '', s.breaker.since && [', since ', when(s.breaker.since)]]],
    ['Next probe', s?.breaker.next_probe && when(s.breaker.next_probe)],
    ['Window', s && `${s.window} at once now, at most ${s.concurrency}`],
    ['Learned rate', s?.learned_rate && [`${rate(s.learned_rate.per_second)}${s.learned_rate.leader ? `, most of it by ${s.learned_rate.leader} and ${rate(s.learned_rate.own_per_second)} here` : ''}, since `, when(s.learned_rate.since), `; ${number(s.learned_rate.throttled)} answers said too much`]],
    ['Rate limit', w.flow.rate ? `${w.flow.rate}/s, bursts of ${w.flow.burst || Math.max(1, w.flow.rate)}` : 'none'],
    ['Waiting here', s?.waiting ? number(s.waiting) : null],
    ['Postponed', s?.postponed ? number(s.postponed) : null],
    ['Last 2xx', s?.last_success_at && when(s.last_success_at)],
    ['Last failure', s?.last_failure_at && when(s.last_failure_at)],
    ['Failing since', s?.failing_since && [when(s.failing_since), `, ${number(s.failed_messages)} messages`]],
    ['Other instances', w.others?.length && h('ul', { class: 'plain' }, w.others.map((o) => h('li', null, o.instance, ': ', badge(stateKind(o.state), o.state), o.until && [' until ', when(o.until)], o.failed_messages > 0 && `, ${number(o.failed_messages)} messages failed`, ', as of ', when(o.as_of))))],
  ));
}

function config(w, c) {
  const b = w.policy.backoff, filter = Object.entries(w.filter).filter(([, v]) => v?.length);
  return card('Registration', facts(
    ['Id', h('code', null, w.id)], ['Queue', h('a', { href: c.href('queues', w.queue) }, w.queue)], ['URL', h('code', { class: 'url' }, w.url)],
    ['Timeout', took(w.timeout)], ['Format', w.format],
    ['Takes', filter.length ? h('code', null, JSON.stringify(w.filter)) : 'every message'],
    ['Attempts', [`${w.policy.max_attempts} within `, took(w.policy.max_age), ` (${w.policy.preset})`]],
    ['Delays', b.delays ? b.delays.join(', ') : `${b.initial} × ${b.factor}, up to ${b.max}`],
    ['Rules', w.policy.rules?.length ? h('ol', { class: 'plain' }, w.policy.rules.map((r) => h('li', null, h('code', null, r.match), r.body_contains && [' with ', h('q', null, r.body_contains)], ` → ${r.action}`))) : 'the usual ones'],
    ['Headers', Object.keys(w.headers).length ? Object.keys(w.headers).join(', ') : null],
    ['Secrets', h('ul', { class: 'plain' }, w.secrets.map((s) => h('li', null, 'from ', when(s.created_at), s.expires_at && [', signs until ', when(s.expires_at)])))],
    ['Changed', when(w.updated_at)], ['Registered', when(w.created_at)],
  ));
}

async function test(view, c) {
  if (view.test?.running) return;
  view.test = { running: true };
  c.redraw();
  // The receiver may take as long as the webhook's timeout, and as long again to be reached.
  view.test = await c.act(null, 'POST', `${view.api}/test`, undefined, { timeout: 1000 * (2 * seconds(view.data.w.timeout) + 15) });
  c.redraw();
}

function testCard(view, c) {
  const t = view.test;
  if (t.running) return card('Test', h('p', { 'aria-busy': 'true' }, 'The test is on its way…'));
  return card('Test', h('p', null, answer(t), ' in ', took(t.duration), t.error && `: ${t.error}`), h('p', null, `${t.decision.explanation}`),
    t.snippet && h('pre', { class: 'foreign', tabindex: '0' }, t.snippet),
    t.request && h('details', null, h('summary', null, 'What was sent'), h('pre', { class: 'foreign', tabindex: '0' }, sent(t.request))), h('p', { class: 'dim' }, 'Nothing was stored, and the webhook stays as it is.'),
    button('Close', () => { view.test = null; c.redraw(); }, { class: 'quiet' }));
}

const sent = (r) => [`${r.method} ${r.url}`, ...Object.entries(r.headers).sort().map(([name, value]) => `${name}: ${value}`), '', r.body].join('\n');

async function rotate(view, c) {
  const yes = await confirm({ title: 'Rotate the secret?', ok: 'Rotate', danger: true, body: [h('p', null, 'A new secret signs at once, beside the old one, for 24 hours. Let the receiver know both within that time: a signature that there can be one of only is the old one\'s until then.')] });
  if (!yes) return;
  const answered = await c.act('The secret is rotated.', 'POST', `${view.api}/rotate-secret`, { overlap: '24h' });
  if (answered) await showSecret(answered.secret);
}

