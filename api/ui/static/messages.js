// Messages: the last attempts to begin with, and the timeline of one message.
import { badge, button, card, empty, facts, h, more, table } from './dom.js';
import { curl, get, part, some } from './api.js';
import { answer, clock, due, exact, number, plural, seconds, span, state, took, when } from './words.js';
import { attemptColumns } from './queues.js';
import { replay } from './deadletters.js';

const choices = { '': 'all answers', '2xx': '2xx', '3xx': '3xx', '4xx': '4xx', '5xx': '5xx' };

export function messages(at, c) {
  const q = at.query;
  const view = {
    title: 'Messages', rows: 50,
    get api() { return `/attempts?${new URLSearchParams({ ...q, limit: 50 })}`; },
    async load() {
      const rows = await some('/attempts', q, view.rows);
      await c.learn(rows.map((a) => a.webhook_id));
      return rows;
    },
    form: () => [
      h('p', { class: 'lead' }, 'Find a message by its id with the field above (', h('kbd', null, '/'), '). These are the last attempts, newest first.'),
      h('form', { class: 'filters', on: { submit: (e) => { e.preventDefault(); go(e.currentTarget); }, change: (e) => go(e.currentTarget) } },
        h('label', null, 'Queue', h('input', { name: 'queue', value: q.queue ?? '', autocomplete: 'off', spellcheck: 'false' })),
        h('label', null, 'Webhook', h('input', { name: 'webhook', list: 'hooks', value: q.webhook ? c.called(q.webhook) : '', autocomplete: 'off', spellcheck: 'false' })),
        h('datalist', { id: 'hooks' }, [...c.names].slice(0, 500).map(([id, name]) => h('option', { value: id }, name))),
        h('label', null, 'Answer', h('select', { name: 'status' }, Object.entries(choices).map(([value, text]) => h('option', { value, selected: (q.status ?? '') === value }, text))))),
    ],
    draw: (rows) => [
      rows.length ? card(null, table('Attempts', attemptColumns(c), rows, (a) => `${a.message_id} ${a.webhook_id} ${a.generation} ${a.number} ${a.started_at}`),
        rows.more && more(view, c.look))
        : empty(Object.keys(q).length ? 'No attempt is like that.' : 'Nothing was sent yet. Publish a message:', Object.keys(q).length ? null : curl('POST', '/queues/orders/messages', { order: 1 })),
    ],
  };
  // A webhook may be given by its name, which is what the page shows, where no other has it.
  let asked = 0; // a name takes a request: of two choices the last one counts
  const go = async (form) => {
    const to = Object.fromEntries(new FormData(form)), turn = ++asked, webhook = await c.idOf(to.webhook.trim());
    if (turn === asked) c.go(c.href('messages', { ...to, webhook, queue: to.queue.trim() }));
  };
  return view;
}

export function message(at, c) {
  const id = at.id, path = `/messages/${part(id)}`;
  const view = {
    title: id, code: true, above: ['#/messages', 'Messages'],
    get every() { return view.data?.next.every((n) => settled.includes(n.state)) ? 10000 : 3000; },
    api: path + (at.query.queue ? `?queue=${part(at.query.queue)}` : ''),
    load: () => get(path, { queue: at.query.queue }),
    draw: (m) => [
      m.next.map((n) => next(m, n, c)),
      card('What happened', timeline(m, c)),
      card('The message', facts(['Queue', h('a', { href: c.href('queues', m.queue) }, m.queue)], ['Size', `${number(m.size)} bytes`], ['Read as', m.encoding], ['SHA-256 begins', m.body_hash && h('code', null, m.body_hash)], ['Expires', m.expires_at && when(m.expires_at)])),
    ],
  };
  return view;
}

const settled = ['delivered', 'dead_lettered', 'unmatched', 'duplicate', 'withdrawn'];

// next is where it stands with one webhook, and what comes.
function next(m, n, c) {
  return h('section', { class: `card next is-${n.state}`, key: `next ${n.webhook_id ?? ''}` },
    h('div', null, state(n.state), ' ', n.webhook_id ? h('a', { href: c.href('webhooks', n.webhook_id) }, c.called(n.webhook_id)) : h('span', { class: 'dim' }, 'the message as a whole'),
      n.next_at && h('strong', { class: 'countdown' }, ' next ', due(n.next_at))),
    h('p', null, n.text),
    h('p', { class: 'dim' }, `${number(n.attempts)} ${n.attempts === 1 ? 'attempt' : 'attempts'}, ${number(n.charged)} counted`, n.waits ? `, ${plural(n.waits, 'wait')} that it asked for` : '', n.generation ? `, replay ${n.generation}` : '', n.reason ? `, ${n.reason}` : ''),
    n.dead_letter_id && h('div', { class: 'buttons left' },
      n.state === 'dead_lettered' && c.can('operate') && button('Replay', () => replay(c, { id: n.dead_letter_id, message_id: m.message_id, webhook_id: n.webhook_id }), { class: 'main', 'data-key': 'r' }),
      h('a', { class: 'button', href: c.href('dead-letters', n.dead_letter_id) }, 'See the dead letter')),
    n.same_event_as && h('p', null, 'The same event came as ', h('a', { href: c.href('messages', n.same_event_as, { queue: m.queue }) }, n.same_event_as), '.'));
}

const kinds = { published: 'info', delivered: 'ok', unmatched: 'off', duplicate: 'off', withdrawn: 'off', held: 'warn', dead_lettered: 'bad', replayed: 'info' };

function timeline(m, c) {
  if (!m.events.length) return h('p', { class: 'dim' }, 'Nothing yet.');
  const lanes = [...new Set(m.events.map((e) => e.webhook_id).filter(Boolean))];
  let before = null;
  return h('ol', { class: 'timeline' }, m.events.map((e) => {
    const at = Date.parse(e.at), gap = before === null ? null : (at - before) / 1000;
    before = at;
    return h('li', { key: `${e.webhook_id ?? ''} ${e.attempt ? `${e.attempt.generation} ${e.attempt.number}` : ''} ${e.at} ${e.event}`, class: `lane${e.webhook_id ? lanes.indexOf(e.webhook_id) % 6 : ''} ${size(gap)}` },
      h('span', { class: 'at' }, clock(e.at), gap !== null && h('span', { class: 'gap', title: 'since what is above' }, `+${span(gap)}`)),
      h('div', { class: 'what' }, e.attempt ? attempt(e, lanes, c) : h('p', null, badge(kinds[e.event] ?? 'info', e.event.replaceAll('_', ' ')), ' ', lanes.length > 1 && e.webhook_id && [chip(e, c), ' '], e.text,
        e.dead_letter_id && [' ', h('a', { href: c.href('dead-letters', e.dead_letter_id) }, 'See it')])));
  }));
}

// size draws gaps to scale, as far as five steps can.
const size = (gap) => (gap === null || gap < 1 ? '' : gap < 10 ? 'gap1' : gap < 120 ? 'gap2' : gap < 3600 ? 'gap3' : 'gap4');

const chip = (e, c) => h('a', { class: 'chip', href: c.href('webhooks', e.webhook_id) }, c.called(e.webhook_id));

function attempt(e, lanes, c) {
  const a = e.attempt;
  return h('details', null,
    h('summary', null, answer(a), ' ', `attempt ${a.number}`, a.generation ? ` of replay ${a.generation}` : '', lanes.length > 1 && [' at ', c.called(e.webhook_id)], h('span', { class: 'dim' }, ' in ', took(a.duration)), h('span', { class: 'why' }, a.explanation ?? e.text)),
    facts(
      ['Webhook', chip(e, c)], ['Status', a.status], ['Error', a.error_class && `${a.error_class}${a.error ? `: ${a.error}` : ''}`],
      ['Answer begins', a.snippet && h('pre', { class: 'foreign', tabindex: '0' }, a.snippet)],
      ['Retry-After', a.retry_after], ['Redirected to', a.redirect_host && `${a.redirect_host} (never followed)`], ['Dialled again', a.redials ? `${a.redials} times` : null],
      ['Not to be read', a.damaged && `${a.damaged}: another program has changed the row`],
      ['Decision', a.action && `${a.action}, ${a.reason}`], ['Why', a.explanation], ['Counts', a.charged ? 'yes, against max_attempts' : 'no'],
      ['Began', exact(Date.parse(e.at))], ['Delay', a.delay && span(seconds(a.delay))], ['Next', a.next_at && due(a.next_at)], ['By', a.instance], ['Received', a.dequeue_count && `${a.dequeue_count} times by then`]));
}
