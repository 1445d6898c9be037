// Dead letters: what they have in common, the list, one of them with its body, and replaying or
// deleting many: a count first, then a yes, then a job.
import { badge, button, card, empty, facts, foreign, h, more, share, table } from './dom.js';
import { Fault, ask, get, part, some } from './api.js';
import { number, plural, state, when } from './words.js';
import { confirm } from './dialogs.js';
import { hex, pretty } from './body.js';

const groups = { reason: 'Reason', webhook: 'Webhook', queue: 'Queue', answer: 'Last answer', cause: 'Cause' };
const narrow = ['queue', 'webhook', 'reason', 'answer', 'cause'];
const filters = [...narrow, 'status'];

export function deadLetters(at, c) {
  const by = groups[at.query.by] ? at.query.by : 'reason';
  const filter = Object.fromEntries(filters.map((f) => [f, at.query[f]]).filter(([, v]) => v));
  filter.status ??= 'waiting';
  const asked = filter.status === 'any' ? { ...filter, status: undefined } : filter;
  const to = (change) => c.href('dead-letters', { ...filter, by: by === 'reason' ? '' : by, ...change });
  const view = {
    title: 'Dead letters', rows: 50, chosen: new Map(), round: 0, live: { queue: filter.queue, webhook: filter.webhook, type: 'dead_letter' }, gap: 2000,
    api: `/dead-letters?${new URLSearchParams(Object.entries(asked).filter(([, v]) => v))}`,
    async load() {
      const summary = get('/dead-letters/summary', { ...asked, group_by: by });
      summary.catch(() => {}); // where the list fails first nobody waits for it
      const rows = await some('/dead-letters', asked, view.rows), groups = await summary;
      await c.learn([...rows.map((d) => d.webhook_id), ...(by === 'webhook' ? groups.groups.slice(0, 10).map((g) => g.key) : [])]);
      return { rows, by, summary: groups };
    },
    every: 10000, // the summary reads all of them
    tools() {
      const n = view.data?.summary.total, k = view.chosen.size;
      if (!n || !c.can('operate') || view.stale) return null;
      if (k) return [filter.status === 'waiting' && button(`Replay ${number(k)} chosen`, () => each(view, c, replaying), { class: 'main', 'data-key': 'r' }), button(`Delete ${number(k)} chosen`, () => each(view, c, deleting), { class: 'danger' })];
      return [filter.status === 'waiting' && button(`Replay ${many(view.data.summary)}`, () => replayMany(c, asked), { class: 'main' }),
        button(`Delete ${many(view.data.summary)}`, () => purge(c, asked), { class: 'danger' })];
    },
    draw: ({ rows, by, summary }) => [
      chips(filter, c, to),
      summary.total === 0 ? empty(Object.keys(filter).length > 1 || filter.status !== 'waiting' ? 'No dead letter is like that.' : 'No dead letter waits. Messages that are given up would be here, to be read, replayed or deleted.')
        : [facets(summary, by, to, c), card(plural(summary.total, 'dead letter') + (summary.exact ? '' : ' at least'), table('Dead letters', columns(c, view, filter.status), rows, (d) => d.id),
          rows.more && more(view, c.look))],
    ],
  };
  return view;
}

const many = (s) => (s.total === 1 ? 'this one' : s.exact ? `all ${number(s.total)}` : 'all');

function chips(filter, c, to) {
  return h('div', { class: 'chips' },
    h('span', { class: 'switch', role: 'group', 'aria-label': 'Which' }, [['waiting', 'Waiting'], ['replaying', 'Replaying'], ['replayed', 'Replayed'], ['any', 'All']].map(([value, text]) =>
      h('a', { href: to({ status: value }), 'aria-current': filter.status === value ? 'true' : null }, text))),
    narrow.filter((f) => filter[f]).map((f) => h('a', { class: 'chip', href: to({ [f]: '' }), title: 'Take this filter away' }, `${f}: ${f === 'webhook' ? c.called(filter[f]) : filter[f]}`, h('span', { 'aria-hidden': 'true' }, ' ✕'))));
}

function facets(s, by, to, c) {
  const most = Math.max(...s.groups.map((g) => g.count), 1);
  const name = (g) => (g.key === '' ? 'none' : by === 'webhook' ? c.called(g.key) : g.key);
  return card(null,
    h('p', { class: 'switch', role: 'group', 'aria-label': 'Group by' }, Object.entries(groups).map(([key, text]) => h('a', { href: to({ by: key === 'reason' ? '' : key }), 'aria-current': key === by ? 'true' : null }, text))),
    table(`By ${groups[by]}`, [
      { head: groups[by], cell: (g) => (g.key ? h('a', { href: to({ [by]: g.key }) }, name(g)) : h('a', { href: c.href('dead-letters', g.example), title: 'The newest of them' }, name(g))) },
      { head: 'How many', num: true, cell: (g) => number(g.count) },
      { head: 'Share', low: true, wide: true, cell: (g) => share(g.count / most) },
      { head: 'Oldest', lower: true, cell: (g) => when(g.oldest) },
      { head: 'Newest', low: true, cell: (g) => when(g.newest) },
    ], s.groups.slice(0, 10), (g) => g.key),
    (s.others > 0 || s.groups.length > 10) && h('p', { class: 'dim' }, `${number(s.others + s.groups.slice(10).reduce((n, g) => n + g.count, 0))} are in smaller groups.`));
}

const columns = (c, view, status) => [
  { head: 'Since', cell: (d) => [c.can('operate') && tick(d, view, c), h('a', { href: c.href('dead-letters', d.id), title: d.id }, when(d.dead_lettered_at))] },
  { head: 'Reason', cell: (d) => h('span', { title: d.description }, d.reason) },
  { head: 'Answer', low: true, cell: (d) => (d.last_status ? badge(d.last_status < 500 ? 'bad' : 'warn', String(d.last_status)) : d.last_error_class ? badge('warn', d.last_error_class) : '–') },
  { head: 'Webhook', low: true, cell: (d) => (d.webhook_id ? c.called(d.webhook_id) : 'none') },
  { head: 'Queue', lower: true, cell: (d) => d.queue },
  { head: 'Tries', num: true, lower: true, cell: (d) => number(d.attempts) },
  status === 'any' && { head: 'State', low: true, cell: (d) => state(d.status) }, // otherwise it is the same in each row
].filter(Boolean);

// tick is the box that chooses a row. What was chosen is chosen until it is done, or another filter shows others.
const tick = (d, view, c) => h('input', { key: `${view.round}`, type: 'checkbox', checked: view.chosen.has(d.id), 'aria-label': `Choose the dead letter of ${d.dead_lettered_at}`, on: { change: (e) => {
  if (e.target.checked) view.chosen.set(d.id, d); else view.chosen.delete(d.id);
  c.redraw();
} } });

const replaying = { title: 'Replay', ok: 'Replay', done: 'sent again', method: 'POST', path: (d) => `/dead-letters/${part(d.id)}/replay`, text: 'Each message is sent again to where it failed, with its full number of attempts.' };
const deleting = { title: 'Delete', ok: 'Delete', done: 'deleted', danger: true, method: 'DELETE', path: (d) => `/dead-letters/${part(d.id)}`, text: 'Nothing is kept of these messages here. This can\'t be taken back.' };

// each does the same with every dead letter that was chosen, one after the other, and says what became of them.
async function each(view, c, what) {
  const list = [...view.chosen.values()];
  if (!await confirm({ title: `${what.title} ${plural(list.length, 'dead letter')}?`, ok: `${what.ok} ${number(list.length)}`, danger: what.danger,
    body: [facts(['Of', [...new Set(list.map((d) => (d.webhook_id ? c.called(d.webhook_id) : d.queue)))].slice(0, 5).join(', ')]), h('p', null, what.text)] })) return;
  let done = 0;
  const failed = [];
  for (const d of list) {
    try {
      await ask(what.method, what.path(d));
      view.chosen.delete(d.id);
      done++;
    } catch (e) {
      if (!(e instanceof Fault)) throw e;
      failed.push(e);
      if (e.away || e.status === 401) break;
    }
    c.say(`${number(done)} of ${number(list.length)} ${what.done}…`);
  }
  view.round++;
  c.look();
  c.say(`${number(done)} of ${number(list.length)} ${what.done}.`);
  if (failed.length) await confirm({ title: `${number(failed.length)} could not be ${what.done}`, body: [...new Set(failed.map((e) => e.message))].map((m) => h('p', null, m)).concat(h('p', { class: 'dim' }, 'Those that were not done are still chosen.')), ok: 'Close', only: true });
}

export function deadLetter(at, c) {
  const id = at.id, path = `/dead-letters/${part(id)}`;
  const view = {
    title: 'Dead letter', above: ['#/dead-letters', 'Dead letters'], api: path, body: null, shownAs: 'pretty', shown: {},
    load: () => get(path),
    tools() {
      const d = view.data;
      if (!d || !c.can('operate')) return null;
      return [button('Replay', () => replay(c, d), { class: 'main', 'data-key': 'r', disabled: d.status !== 'waiting' }), button('Delete', () => remove(c, d), { class: 'danger' })];
    },
    draw: (d) => [
      h('div', { class: 'state' }, state(d.status), h('p', null, h('strong', null, d.reason), d.description && `: ${d.description}`)),
      h('div', { class: 'two' },
        card('What happened', facts(['Message', h('a', { class: 'id', href: c.href('messages', d.message_id, { queue: d.queue }) }, d.message_id)], ['Queue', h('a', { href: c.href('queues', d.queue) }, d.queue)],
          ['Webhook', d.webhook_id ? h('a', { href: c.href('webhooks', d.webhook_id) }, c.called(d.webhook_id)) : 'none: the message as a whole was given up'],
          ['Attempts', number(d.attempts)], ['Last answer', d.last_status ?? d.last_error_class], ['First attempt', d.first_at && when(d.first_at)], ['Last attempt', d.last_at && when(d.last_at)],
          ['Dead letter since', when(d.dead_lettered_at)], ['Published', d.inserted_at && when(d.inserted_at)], ['Replays', d.replays ? [number(d.replays), d.replayed_at && [', the last ', when(d.replayed_at)]] : null],
          ['Copied to', d.copied_to_queue && h('code', null, d.copied_to_queue)])),
        bodyCard(view, d, c)),
      d.warnings?.map((w) => h('div', { class: 'notice warn' }, w)),
    ],
  };
  return view;
}

function bodyCard(view, d, c) {
  if (!c.can('operate')) return card('Body', h('p', { class: 'dim' }, `${number(d.size)} bytes. Reading them needs a key with the scope operate.`));
  if (!view.body) return card('Body', h('p', null, `${number(d.size)} bytes, SHA-256 begins `, h('code', null, d.body_hash ?? '–'), '.'), button('Show it', () => showBody(view, c)));
  const b = view.body, form = b.text === null ? 'hex' : view.shownAs;
  const shown = view.shown[form] ??= form === 'hex' ? hex(Uint8Array.from(atob(b.base64), (x) => x.charCodeAt(0))) : form === 'pretty' ? pretty(b.text) : b.text;
  return card('Body', h('p', { class: 'switch', role: 'group', 'aria-label': 'Shown as' }, ['pretty', 'text', 'hex'].map((f) => button(f, () => { view.shownAs = f; c.redraw(); }, { 'aria-pressed': form === f, class: 'quiet', disabled: b.text === null && f !== 'hex' }))),
    h('pre', { class: 'foreign', tabindex: '0' }, shown), h('p', { class: 'dim' }, `${b.content_type}, stored as ${b.encoding}`));
}

async function showBody(view, c) {
  try {
    view.body = (await get(view.api, { body: 'true' })).body;
  } catch (e) {
    if (!(e instanceof Fault)) throw e;
    if (!await confirm({ title: 'The body', body: [h('p', null, e.message), ...e.cures.map((x) => h('p', { class: 'dim' }, x))], ok: e.status === 409 ? 'Show what the row has now' : 'Close', only: e.status !== 409 }) || e.status !== 409) return;
    view.body = (await get(view.api, { body: 'true', force: 'true' })).body;
  }
  c.redraw();
}

// replay sends one dead letter again.
export async function replay(c, d) {
  const path = `/dead-letters/${part(d.id)}/replay`;
  if (!await confirm({ title: 'Replay it?', ok: 'Replay', body: [h('p', null, `The same message is sent to `, d.webhook_id ? foreign(c.called(d.webhook_id)) : 'the webhooks of its queue that take it', ' again, with its full number of attempts.')] })) return;
  if (await c.act('The replay is on the queue.', 'POST', path)) c.go(c.href('messages', d.message_id, { queue: d.queue }));
}

async function remove(c, d) {
  if (!await confirm({ title: 'Delete it?', ok: 'Delete', danger: true, body: [h('p', null, 'Nothing is kept of the message here, and it can\'t be replayed any more.'), d.copied_to_queue && h('p', null, 'A copy that was put on ', h('code', null, d.copied_to_queue), ' stays there, with the whole text.')] })) return;
  if (await c.act('The dead letter is deleted.', 'DELETE', `/dead-letters/${part(d.id)}`)) c.go('#/dead-letters');
}

// named says which dead letters a filter is about; without any, all has to be said.
const named = (f) => (narrow.some((n) => f[n]) ? { ...f } : { ...f, all: true });
const inWords = (f, c) => [f.queue && `queue ${f.queue}`, f.webhook && `webhook ${c.called(f.webhook)}`, f.reason && `reason ${f.reason}`, f.answer && `answer ${f.answer}`, f.cause && `cause “${f.cause}”`].filter(Boolean).join(', ') || 'all queues and webhooks';

// upTo leaves out what came after the count. That is a filter too, which all would contradict.
function upTo(dry, { all, ...body }) {
  return dry.until ? { ...body, until: dry.until } : { ...body, all }; // an instance of an older version names none
}

// manner asks how a job is to go about it.
function manner(dry) {
  const rate = h('input', { name: 'rate', type: 'number', min: '0.01', max: '1000', step: 'any', value: dry.rate }), limit = h('input', { name: 'limit', type: 'number', min: '1', placeholder: 'all' });
  const order = h('select', null, h('option', { value: 'oldest' }, 'oldest messages first'), h('option', { value: 'newest' }, 'newest dead letters first'));
  const force = h('input', { type: 'checkbox' });
  return {
    form: h('div', { class: 'filters' }, h('label', null, 'At most a second', rate), h('label', null, 'At most in all', limit), h('label', null, 'Order', order), h('label', { class: 'tick' }, force, 'Also those that were replayed ten times already')),
    read: () => ({ ...(rate.valueAsNumber > 0 ? { rate: rate.valueAsNumber } : {}), ...(limit.valueAsNumber > 0 ? { limit: limit.valueAsNumber } : {}), order: order.value, ...(force.checked ? { force: true } : {}) }),
  };
}

async function replayMany(c, filter) {
  const body = named(filter);
  delete body.status; // waiting is what a job takes
  const dry = await c.act(null, 'POST', '/replays', { ...body, dry_run: true });
  if (!dry) return;
  const skipped = Object.entries(dry.skipped_because).filter(([, n]) => n).map(([why, n]) => `${number(n)} ${why.replaceAll('_', ' ')}`);
  const n = dry.matched - dry.skipped, how = manner(dry);
  if (!await confirm({ title: `Replay ${dry.exact ? '' : 'at least '}${plural(n, 'dead letter')}?`, ok: `Replay ${dry.exact ? number(n) : 'all'}`,
    body: [facts(['Of', inWords(filter, c)], ['Left out', skipped.join(', ') || null]), how.form, h('p', { class: 'dim' }, 'It is a job: you can watch it and cancel it. What becomes a dead letter from now on is not among them.')] })) return;
  const job = await c.act('The job has started.', 'POST', '/replays', { ...upTo(dry, body), ...how.read() });
  if (job) c.go(c.href('jobs', job.id));
}

async function purge(c, filter) {
  const body = Object.fromEntries(Object.entries(named(filter)).filter(([, v]) => v));
  const dry = await c.act(null, 'POST', '/dead-letters/purge', { ...body, dry_run: true });
  if (!dry) return;
  const n = dry.matched - dry.kept;
  if (!await confirm({ title: `Delete ${dry.exact ? '' : 'at least '}${plural(n, 'dead letter')}?`, ok: `Delete ${dry.exact ? number(n) : 'all'}`, danger: true,
    body: [facts(['Of', inWords(filter, c)], ['Never replayed', number(dry.never_replayed)], ['Spared', dry.kept ? `${number(dry.kept)}, whose replay is under way` : null], ['Copies left', dry.copies_left ? `${number(dry.copies_left)} on poison queues` : null]), h('p', null, 'Nothing is kept of these messages here. This can\'t be taken back.')] })) return;
  let cursor = null, deleted = 0;
  do {
    const done = await ask('POST', '/dead-letters/purge', { body: { ...upTo(dry, body), dry_run: false, ...(cursor ? { cursor } : {}) } }).catch((e) => e);
    if (done instanceof Error) { c.say(`${number(deleted)} are deleted; then: ${done.message}`); break; }
    deleted += done.purged;
    cursor = done.next_cursor;
    c.say(`${plural(deleted, 'dead letter is', 'dead letters are')} deleted${cursor ? '…' : '.'}`);
  } while (cursor);
  c.look();
}

