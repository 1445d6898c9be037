// Messages: the last attempts to begin with, and the timeline of one message.
import { badge, button, card, empty, facts, h, more, table } from './dom.js';
import { curl, get, part, some } from './api.js';
import { answer, clock, due, exact, number, plural, seconds, span, state, told, took, when } from './words.js';
import { attempted, attemptColumns, attemptKey } from './queues.js';
import { replay } from './deadletters.js';

const answers = { '': 'all answers', '2xx': '2xx', '3xx': '3xx', '4xx': '4xx', '5xx': '5xx' };
const states = ['pending', 'delivered', 'held', 'dead_lettering', 'dead_lettered', 'published', 'unmatched', 'duplicate', 'withdrawn'];
const pages = 4; // of a list that looks through much for little

// messages shows attempts, or where messages stand: by a switch that the address holds as `as`.
export function messages(at, c) {
  const { as, ...q } = at.query, standing = as === 'states', path = standing ? '/messages' : '/attempts';
  const ask = standing ? { queue: q.queue, webhook: q.webhook, state: q.state, from: q.from, until: q.until } : { queue: q.queue, webhook: q.webhook, status: q.status, from: q.from, until: q.until };
  const view = {
    title: 'Messages', rows: 50, own: standing, live: { queue: q.queue, webhook: q.webhook, type: standing ? 'attempt,dead_letter' : 'attempt' }, gap: 2000,
    told(event, a, rows) {
      if (event !== 'attempt' || standing) return '';
      if (q.until || q.status && String(a.status ?? '').replace(/..$/, 'xx') !== q.status) return 'other';
      attempted(rows, a, view.rows);
      return 'taken';
    },
    get api() { return `${path}?${new URLSearchParams(Object.entries({ ...ask, limit: 50 }).filter(([, v]) => v))}`; },
    async load() {
      const rows = await some(path, ask, view.rows, standing ? pages : Infinity);
      await c.learn(rows.map((a) => a.webhook_id));
      return rows;
    },
    form: () => [
      h('p', { class: 'switch', role: 'group', 'aria-label': 'What is listed' }, [['', 'Attempts'], ['states', 'Where messages stand']].map(([value, text]) => h('a', { href: c.href('messages', { queue: q.queue, webhook: q.webhook, from: q.from, until: q.until, as: value }), 'aria-current': (as ?? '') === value ? 'true' : null }, text))),
      h('form', { class: 'filters', key: `filters ${as ?? ''}`, on: { submit: (e) => { e.preventDefault(); go(e.currentTarget); }, change: (e) => go(e.currentTarget) } },
        h('label', null, 'Queue', h('input', { name: 'queue', value: q.queue ?? '', autocomplete: 'off', spellcheck: 'false' })),
        h('label', null, 'Webhook', h('input', { name: 'webhook', list: 'hooks', value: q.webhook ? c.called(q.webhook) : '', autocomplete: 'off', spellcheck: 'false' })),
        h('datalist', { id: 'hooks' }, [...c.names].slice(0, 500).map(([id, name]) => h('option', { value: id }, name))),
        standing ? h('label', null, 'State', h('select', { name: 'state' }, ['', ...states].map((value) => h('option', { value, selected: (q.state ?? '') === value }, value ? value.replaceAll('_', ' ') : 'all states'))))
          : h('label', null, 'Answer', h('select', { name: 'status' }, Object.entries(answers).map(([value, text]) => h('option', { value, selected: (q.status ?? '') === value }, text)))),
        h('label', null, standing ? 'Published from' : 'From', h('input', { name: 'from', type: 'datetime-local', value: local(q.from) })),
        h('label', null, 'Until', h('input', { name: 'until', type: 'datetime-local', value: local(q.until) }))),
      h('p', { class: 'lead' }, 'Find one message by its id with the field above (', h('kbd', null, '/'), '). ', standing ? 'These are those of the newest day first.' : 'These are the last attempts, newest first.'),
    ],
    draw: (rows) => (rows.length ? card(null, standing ? table('Messages', stateColumns(c), rows, (m) => `${m.queue} ${m.message_id} ${m.webhook_id ?? ''}`) : table('Attempts', attemptColumns(c), rows, attemptKey), rows.more && more(view, c.look))
      : rows.more ? h('div', { class: 'empty' }, h('p', null, 'None of the newest is like that.'), more(view, c.look))
        : empty(Object.keys(q).length ? `No ${standing ? 'message' : 'attempt'} is like that.` : standing ? 'Nothing is recorded of any message yet. Publish one:' : 'Nothing was sent yet. Publish a message:', Object.keys(q).length ? null : curl('POST', '/queues/orders/messages', { order: 1 }))),
  };
  // A webhook may be given by its name, which is what the page shows, where no other has it.
  let asked = 0; // a name takes a request: of two choices the last one counts
  const go = async (form) => {
    const to = Object.fromEntries(new FormData(form)), turn = ++asked, webhook = await c.idOf(to.webhook.trim());
    if (turn === asked) c.go(c.href('messages', { ...to, as, webhook, queue: to.queue.trim(), from: utc(to.from), until: utc(to.until) }));
  };
  return view;
}

const utc = (text) => (text ? new Date(text).toISOString().replace('.000Z', 'Z') : '');
// local is a time as a field for one has it: the minute here.
const local = (iso) => (Number.isNaN(Date.parse(iso)) ? '' : new Date(Date.parse(iso) - 60000 * new Date(iso).getTimezoneOffset()).toISOString().slice(0, 16));

const stateColumns = (c) => [
  { head: 'Published', cell: (m) => h('a', { href: c.href('messages', m.message_id, { queue: m.queue }), title: `Message ${m.message_id}` }, clock(m.inserted_at ?? m.updated_at)) },
  { head: 'State', cell: (m) => h('span', { title: m.text }, state(m.state)) },
  { head: 'Next or last answer', cell: (m) => (m.next_at && !settled.includes(m.state) ? due(m.next_at) : m.last_status ? answer({ status: m.last_status }) : m.last_error_class ? answer({ error_class: m.last_error_class }) : '–') },
  { head: 'Webhook', low: true, cell: (m) => (m.webhook_id ? h('a', { href: c.href('webhooks', m.webhook_id) }, c.called(m.webhook_id)) : h('span', { class: 'dim' }, 'as a whole')) },
  { head: 'Queue', lower: true, cell: (m) => h('a', { href: c.href('queues', m.queue) }, m.queue) },
  { head: 'Tries', num: true, low: true, cell: (m) => number(m.attempts) },
];

export function message(at, c) {
  const id = at.id, path = `/messages/${part(id)}`;
  const view = {
    title: id, code: true, above: ['#/messages', 'Messages'], live: { queue: at.query.queue, type: 'attempt,dead_letter' }, gap: 500,
    told: (event, data) => (data.message_id === id ? '' : 'other'),
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
    h('p', null, told(n.text)),
    h('p', { class: 'dim' }, `${number(n.attempts)} ${n.attempts === 1 ? 'attempt' : 'attempts'}, ${number(n.charged)} counted`, n.waits ? `, ${plural(n.waits, 'wait')} that it asked for` : '', n.generation ? `, replay ${n.generation}` : '', n.reason ? `, ${n.reason}` : ''),
    n.dead_letter_id && h('div', { class: 'buttons left' },
      n.state === 'dead_lettered' && c.can('operate') && button('Replay', () => replay(c, { id: n.dead_letter_id, message_id: m.message_id, webhook_id: n.webhook_id }), { class: 'main', 'data-key': 'r' }),
      h('a', { class: 'button', href: c.href('dead-letters', n.dead_letter_id) }, 'See the dead letter')),
    n.same_event_as && h('p', null, 'The same event came as ', h('a', { href: c.href('messages', n.same_event_as, { queue: m.queue }) }, n.same_event_as), '.'));
}

const kinds = { published: 'info', delivered: 'ok', unmatched: 'off', duplicate: 'off', withdrawn: 'off', held: 'warn', dead_lettered: 'bad', replayed: 'info' };

const mostLanes = 6; // further webhooks have no lane of their own

// timeline has a lane for each webhook, with a dot in it where something happened there; what concerns the message as a whole goes over all of them.
function timeline(m, c) {
  if (!m.events.length) return h('p', { class: 'dim' }, 'Nothing yet.');
  const lanes = [...new Set(m.events.map((e) => e.webhook_id).filter(Boolean))], shown = lanes.slice(0, mostLanes);
  const ends = new Map(m.events.map((e, i) => [e.webhook_id, i])); // a lane ends with what was last there
  const open = new Set(m.next.filter((n) => !settled.includes(n.state)).map((n) => n.webhook_id));
  let before = null;
  return [lanes.length > 1 && h('ul', { class: 'legend', 'aria-label': 'Lanes' }, shown.map((id, i) => h('li', null, h('span', { class: `dot lane${i}`, 'aria-hidden': 'true' }), h('a', { href: c.href('webhooks', id) }, c.called(id)))), lanes.length > mostLanes && h('li', null, `and ${lanes.length - mostLanes} more`)),
    h('ol', { class: 'timeline' }, m.events.map((e, i) => {
      const at = Date.parse(e.at), gap = before === null ? null : (at - before) / 1000;
      before = at;
      return h('li', { key: `${e.webhook_id ?? ''} ${e.attempt ? `${e.attempt.generation} ${e.attempt.number}` : ''} ${e.at} ${e.event}`, class: size(gap) },
        h('span', { class: 'at' }, clock(e.at), gap !== null && h('span', { class: 'gap', title: 'since what is above' }, `+${span(gap)}`)),
        h('span', { class: 'lanes', 'aria-hidden': 'true' }, (shown.length ? shown : ['']).map((id, n) => h('span', { class: `lane lane${id === '' ? '' : n} ${i <= (ends.get(id) ?? 0) || open.has(id) ? 'on' : ''} ${i === ends.get(id) && !open.has(id) ? 'last' : ''} ${i === 0 ? 'first' : ''}` }, (e.webhook_id ?? '') === id || !e.webhook_id ? h('span', { class: 'mark' }) : null))),
        h('div', { class: 'what' }, e.attempt ? attempt(e, lanes, c) : h('p', null, badge(kinds[e.event] ?? 'info', e.event.replaceAll('_', ' ')), ' ', lanes.length > 1 && e.webhook_id && [chip(e, c), ' '], told(e.text),
          e.dead_letter_id && [' ', h('a', { href: c.href('dead-letters', e.dead_letter_id) }, 'See it')])));
    }))];
}

// size draws gaps to scale, as far as five steps can.
const size = (gap) => (gap === null || gap < 1 ? '' : gap < 10 ? 'gap1' : gap < 120 ? 'gap2' : gap < 3600 ? 'gap3' : 'gap4');

const chip = (e, c) => h('a', { class: 'chip', href: c.href('webhooks', e.webhook_id) }, c.called(e.webhook_id));

function attempt(e, lanes, c) {
  const a = e.attempt;
  return h('details', null,
    h('summary', null, answer(a), ' ', `attempt ${a.number}`, a.generation ? ` of replay ${a.generation}` : '', lanes.length > 1 && [' at ', c.called(e.webhook_id)], h('span', { class: 'dim' }, ' in ', took(a.duration)), h('span', { class: 'why' }, told(a.explanation ?? e.text))),
    facts(
      ['Webhook', chip(e, c)], ['Status', a.status], ['Error', a.error_class && `${a.error_class}${a.error ? `: ${a.error}` : ''}`],
      ['Answer begins', a.snippet && h('pre', { class: 'foreign', tabindex: '0' }, a.snippet)],
      ['Retry-After', a.retry_after], ['Redirected to', a.redirect_host && `${a.redirect_host} (never followed)`], ['Dialled again', a.redials ? plural(a.redials, 'time') : null],
      ['Not to be read', a.damaged && `${a.damaged}: another program has changed the row`],
      ['Decision', a.action && `${a.action}, ${a.reason}`], ['Why', a.explanation], ['Counts', a.charged ? 'yes, against max_attempts' : 'no'],
      ['Began', exact(Date.parse(e.at))], ['Delay', a.delay && span(seconds(a.delay))], ['Next', a.next_at && clock(a.next_at)], ['By', a.instance], ['Received', a.dequeue_count && `${plural(a.dequeue_count, 'time')} by then`]));
}
