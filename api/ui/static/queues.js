// Queues, and one of them.
import { badge, button, card, empty, facts, h, longTable, plot, table } from './dom.js';
import { Fault, ask, curl, get, now, part, some } from './api.js';
import { byQueue, history, historyCard } from './history.js';
import { hex, pretty } from './body.js';
import { answer, clock, due, fares, number, plural, seconds, span, took, when } from './words.js';

export function queueColumns(c) {
  return [
    { head: 'Queue', cell: (q) => h('a', { href: c.href('queues', q.name) }, q.name) },
    { head: 'State', cell: (q) => stateOf(q) },
    { head: 'Waiting', num: true, cell: (q) => depth(q, 'visible') },
    { head: 'In flight', num: true, low: true, cell: (q) => depth(q, 'in_flight') },
    { head: 'Delayed', num: true, low: true, cell: (q) => depth(q, 'delayed') },
    { head: 'Oldest', num: true, lower: true, cell: (q) => (q.hour?.oldest ? span(q.hour.oldest) : '–') },
    { head: 'Dead', num: true, cell: (q) => deadLink(c, q) },
    { head: 'Webhooks', num: true, lower: true, cell: (q) => number(q.webhooks.length) },
    { head: 'Last hour', lower: true, wide: true, cell: (q) => plot(q.hour?.line, `Messages on ${q.name} in the last hour`) },
  ];
}

function depth(q, name) {
  if (!q.depth) return h('span', { class: 'dim', title: q.exists ? 'Storage did not count it.' : 'It does not exist yet: the first message makes it.' }, '–');
  return h('span', { title: q.depth.exact ? null : 'Storage only estimates this.' }, `${q.depth.exact || name === 'in_flight' ? '' : '≈'}${number(q.depth[name])}`);
}

function deadLink(c, q) {
  const d = q.dead_letters;
  if (!d) return '–';
  if (!d.waiting) return h('span', { class: 'dim' }, '0');
  return h('a', { class: d.level === 'ok' ? 'some' : 'many', href: c.href('dead-letters', { queue: q.name }), title: d.text }, `${number(d.waiting)}${d.exact ? '' : '+'}`);
}

const failing = (p) => p?.last_error && Date.parse(p.last_error_at) >= Date.parse(p.last_poll_at ?? 0);

function stateOf(q) {
  if (failing(q.poller)) return badge('bad', 'can\'t receive', q.poller.last_error);
  if (q.held) return badge('warn', 'held', 'Its last webhook was deleted while messages were on it.');
  if (!q.exists) return badge('off', 'not yet made', 'The first message makes it.');
  if (q.webhooks.length === 0) return badge('off', 'no webhook');
  if (!q.webhooks.some((w) => w.enabled)) return badge('warn', 'all disabled');
  if (!q.poller?.polling) return badge('wait', 'not polled', 'This process does not receive from it at present: its webhooks can\'t be sent to, or another process does.');
  return badge('ok', 'received');
}

export function queues(at, c) {
  const view = {
    title: 'Queues', api: '/queues?limit=500', rows: 200, live: { type: 'dead_letter,webhook' }, gap: 2000,
    async load() {
      const [list, hour] = await Promise.all([some('/queues', { contains: at.query.find }, view.rows), byQueue()]);
      for (const q of list) q.hour = hour.of(q.name);
      return list;
    },
    draw: (list) => (list.length || at.query.find ? longTable('Queues', queueColumns(c), list, { key: (q) => q.name, view, find: at.query.find, onFind: (find) => c.go(c.href('queues', { find })), look: c.look })
      : empty('There is no queue yet. The first message that is published to one makes it:', curl('POST', '/queues/orders/messages', { order: 1 }))),
  };
  return view;
}

export function queue(at, c) {
  const name = at.id;
  const match = { answer: null }, waits = {};
  return {
    title: name, above: ['#/queues', 'Queues'], api: `/queues/${part(name)}`, live: { queue: name, type: 'attempt,dead_letter,webhook' }, gap: 2000,
    told(event, data, d) {
      if (event !== 'attempt') return '';
      attempted(d.attempts, data, 20);
      return 'taken';
    },
    async load() {
      const [q, hour, attempts, hooks, past] = await Promise.all([get(`/queues/${part(name)}`), byQueue(), get('/attempts', { queue: name, limit: 20 }), some('/webhooks', { queue: name }), history(at, { queue: name })]);
      q.hour = hour.of(name);
      hooks.forEach((w) => c.names.set(w.id, w.name));
      return { q, attempts: attempts.data, hooks, past };
    },
    draw: ({ q, attempts, hooks, past }) => [
      failing(q.poller) && h('div', { class: 'notice bad' }, h('strong', null, 'It can\'t be received from. '), q.poller.last_error, ' (', when(q.poller.last_error_at), ')'),
      q.held && h('div', { class: 'notice warn' }, h('strong', null, 'Its messages are held. '), 'Its last webhook was deleted ', when(q.held.since), ', while messages were on it. A webhook that is registered here gets them; otherwise they become dead letters before they expire.'),
      q.poller?.gone_at && h('div', { class: 'notice warn' }, when(q.poller.gone_at), `: ${q.poller.gone_text}`),
      h('div', { class: 'tiles' },
        tile('Waiting', depth(q, 'visible'), plot(q.hour?.line, 'All messages on it in the last hour')), tile('Oldest that waits', q.hour?.oldest ? span(q.hour.oldest) : '–'),
        tile('In flight here', depth(q, 'in_flight')), tile('Delayed', depth(q, 'delayed')), tile('Dead letters', deadLink(c, q))),
      card('Webhooks', hooks.length ? table('Webhooks', hookColumns(c), hooks, (w) => w.id)
        : empty('No webhook takes its messages. Register one:', curl('POST', '/webhooks', { queue: name, url: 'https://example.com/hook' }))),
      historyCard(past, (query) => c.href('queues', name, query)),
      h('div', { class: 'two' }, lease(q), matchBox(name, c, match)),
      whatWaits(name, c, waits),
      card('Last attempts', attempts.length ? table('Last attempts', attemptColumns(c), attempts, attemptKey) : h('p', { class: 'dim' }, 'There was no attempt yet.')),
    ],
  };
}

const tile = (text, value, line) => h('div', { class: 'tile' }, h('span', { class: 'name' }, text), h('strong', null, value), line);

const hookColumns = (c) => [
  { head: 'Webhook', cell: (w) => h('a', { href: c.href('webhooks', w.id) }, w.name || w.id) },
  { head: 'State', cell: (w) => fares(w) },
  { head: 'URL', low: true, cell: (w) => h('span', { class: 'url' }, w.url) },
];

// attemptColumns are those of attempts wherever they are listed.
export const attemptColumns = (c, without) => [
  { head: 'When', cell: (a) => h('a', { href: c.href('messages', a.message_id, { queue: a.queue }), title: `Message ${a.message_id}` }, clock(a.started_at)) },
  { head: 'Answer', cell: (a) => answer(a) },
  { head: 'Then', cell: (a) => h('span', { title: a.explanation }, thenOf(a)) },
  without !== 'webhook' && { head: 'Webhook', low: true, cell: (a) => h('a', { href: c.href('webhooks', a.webhook_id) }, c.called(a.webhook_id)) },
  { head: 'Try', num: true, lower: true, cell: (a) => `${a.number}${a.generation ? ` of replay ${a.generation}` : ''}` },
  { head: 'Took', num: true, low: true, cell: (a) => took(a.duration) },
].filter(Boolean);

// attemptKey tells attempts apart. The stream has their times to the nanosecond, a list to the millisecond.
export const attemptKey = (a) => `${a.message_id} ${a.webhook_id} ${a.generation} ${a.number} ${Date.parse(a.started_at)}`;

// attempted puts an attempt that the stream tells of before the others, in the order in which they began.
export function attempted(rows, a, most) {
  if (rows.some((r) => attemptKey(r) === attemptKey(a))) return;
  const at = rows.findIndex((r) => Date.parse(r.started_at) <= Date.parse(a.started_at));
  rows.splice(at < 0 ? rows.length : at, 0, a);
  rows.length = Math.min(rows.length, most);
}

function thenOf(a) {
  if (a.action === 'complete') return 'delivered';
  if (a.action === 'abandon') return Date.parse(a.next_at) > now() ? ['again ', due(a.next_at)] : `again after ${span(a.next_at ? (Date.parse(a.next_at) - Date.parse(a.started_at)) / 1000 : seconds(a.delay ?? '0s'))}`;
  return { 'dead-letter': 'dead letter', hold: 'held', 'no-verdict': 'no verdict' }[a.action] ?? a.action ?? 'not to be read';
}

function lease(q) {
  const r = q.recommendation, p = q.processing, d = q.deletions;
  return card('Lease and poller', facts(
    ['Lease', q.lease && [took(q.lease), q.lease_mode && ` (${q.lease_mode})`]],
    ['Why', r?.reasoning],
    ['Messages take', p?.samples ? [took(p.p50), ' median, ', took(p.p95), ' p95, ', took(p.p99), ` p99 of ${plural(p.samples, 'message')}`] : null],
    ['At risk', r?.at_risk ? badge('warn', `slow messages take ${Math.round(100 * r.utilisation)} % of the lease`) : null],
    ['Deletes', d && d.total ? `${number(d.successful)} of ${number(d.total)} worked${d.unverified ? `, ${number(d.unverified)} had to be repeated` : ''}` : null],
    ['Encoding', q.encoding],
    ['Last look', q.poller?.last_poll_at && when(q.poller.last_poll_at)],
    ['Last error', q.poller?.last_error && [q.poller.last_error, ' (', when(q.poller.last_error_at), ')']],
  ));
}

// whatWaits looks at messages on the queue when somebody asks: it costs storage transactions.
function whatWaits(name, c, waits) {
  const look = async () => {
    const bodies = c.can('operate');
    try {
      const [front, later] = await Promise.all([get(`/queues/${part(name)}/messages`, { body: bodies ? 'true' : '' }), get('/messages', { queue: name, state: 'published', limit: 100 })]);
      Object.assign(waits, { at: new Date(now()).toISOString(), front: front.data, later: later.data.filter((m) => Date.parse(m.next_at) > now()), fault: null });
    } catch (f) {
      if (!(f instanceof Fault)) throw f;
      waits.fault = f;
    }
    c.redraw();
  };
  const link = (m) => h('a', { class: 'id', href: c.href('messages', m.message_id, { queue: name }) }, m.message_id);
  return card('What waits', h('p', { class: 'dim' }, 'The messages at the front, and those that their publisher has delayed. Nothing is received by looking.'),
    h('div', { class: 'buttons left' }, button(waits.at ? 'Look again' : 'Look', look)),
    h('div', { class: 'waits', 'aria-live': 'polite' }, waits.fault && h('p', { class: 'wrong' }, waits.fault.message),
      waits.at && !waits.fault && [h('p', { class: 'dim' }, waits.front.length ? [plural(waits.front.length, 'message'), ' at the front, '] : 'Nothing waits at the front, ', 'as of ', clock(waits.at), '.'),
        waits.front.length > 0 && table('At the front', [
          { head: 'Message', cell: link }, { head: 'Published', cell: (m) => when(m.inserted_at) }, { head: 'Expires', low: true, cell: (m) => (m.expires_at ? when(m.expires_at) : 'never') }, { head: 'Bytes', low: true, num: true, cell: (m) => number(m.size) },
        ], waits.front, (m) => m.message_id),
        waits.front.filter((m) => m.body).map((m) => h('details', { key: m.message_id }, h('summary', null, 'Body of ', h('span', { class: 'id' }, m.message_id)), h('pre', { class: 'foreign', tabindex: '0' }, m.body.text === null ? hex(Uint8Array.from(atob(m.body.base64), (x) => x.charCodeAt(0))) : pretty(m.body.text)))),
        waits.later.length > 0 && [h('h3', null, 'Delayed by their publisher'), table('Delayed', [
          { head: 'Message', cell: link }, { head: 'Received from', cell: (m) => due(m.next_at) }, { head: 'Published', low: true, cell: (m) => when(m.inserted_at) },
        ], waits.later, (m) => m.message_id)]]));
}

// matchBox says which webhooks would take a message, without sending anything.
function matchBox(name, c, match) {
  const submit = async (e) => {
    e.preventDefault();
    const body = e.target.elements.body.value;
    try {
      match.answer = await ask('POST', `/queues/${part(name)}/match`, { body, type: body.trimStart().startsWith('{') || body.trimStart().startsWith('[') ? 'application/json' : 'text/plain' });
    } catch (f) {
      if (!(f instanceof Fault)) throw f;
      match.answer = { fault: [f.message, ...f.cures].join(' ') };
    }
    c.redraw();
  };
  const m = match.answer;
  return card('Who would take it?', h('form', { class: 'match', on: { submit } },
    h('label', { for: 'match' }, 'A message; nothing is published or sent'),
    h('textarea', { id: 'match', name: 'body', rows: 4, required: true, spellcheck: 'false', placeholder: '{"specversion":"1.0","type":"order.paid", …}' }),
    h('button', { type: 'submit' }, 'Ask')),
  h('div', { 'aria-live': 'polite' }, m && (m.fault ? h('p', { class: 'wrong' }, m.fault) : [h('p', null, badge({ delivered: 'ok', held: 'warn', unmatched: 'off' }[m.outcome] ?? 'bad', m.outcome), ' ', m.text),
    h('ul', { class: 'plain' }, m.webhooks.map((w) => h('li', null, badge(w.takes ? 'ok' : 'off', w.takes ? 'takes it' : 'does not'), ' ', h('a', { href: c.href('webhooks', w.webhook_id) }, w.name || w.webhook_id), ' ', h('span', { class: 'dim' }, w.reason))))])));
}

