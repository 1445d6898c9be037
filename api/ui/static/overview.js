// The overview: what is wrong, why, and the one thing to do about it; then how everything fares.
import { badge, button, card, copyable, h, plot, table } from './dom.js';
import { curl, get, ready, some } from './api.js';
import { number, plural, rate, refuses, seconds, sentences, span, told, when } from './words.js';
import { byQueue, byWebhook, history, historyCard, lately, percent } from './history.js';
import { queueColumns } from './queues.js';
import { webhookColumns, switchWebhook } from './webhooks.js';

export function overview(at, c) {
  const view = {
    title: 'Overview', api: '/webhooks?limit=500', live: { type: 'dead_letter,webhook' }, gap: 2000,
    alert: () => (view.troubles?.length ? `(${view.troubles.length}) ` : ''),
    async load() {
      const [hooks, queues, instances, checks, past, day, hour, late] = await Promise.all([worst('/webhooks', (w) => w.id), worst('/queues', (q) => q.name), get('/instances'), ready(), history(at), byWebhook(), byQueue(), lately()]);
      for (const w of hooks) w.day = day.of(w.id);
      for (const q of queues) q.hour = hour.of(q.name);
      hooks.forEach((w) => c.names.set(w.id, w.name));
      // An instance says how it is once a minute; the one that answers was asked just now.
      for (const i of instances.data) if (i.this) Object.assign(i, { ready: checks.ready, trouble: '' });
      return { hooks, queues, past, late, instances: instances.data, ...checks };
    },
    draw(d) {
      view.troubles = troubles(d, c);
      return [
        head(view.troubles, d),
        view.troubles.length > 0 && h('ul', { class: 'troubles', 'aria-label': 'Trouble' }, view.troubles.slice(0, 50).map((t) => trouble(t))),
        view.troubles.length > 50 && h('p', { class: 'foot' }, `These are 50 of ${number(view.troubles.length)}, the worst first.`),
        d.hooks.length === 0 ? first() : figures(d),
        d.hooks.length > 0 && historyCard(d.past, (query) => c.href('', query)),
        d.queues.length > 0 && card('Queues', table('Queues', queueColumns(c), d.queues.slice(0, 12), (q) => q.name), d.queues.length > 12 && more('queues', d.queues)),
        d.hooks.length > 0 && card('Webhooks', table('Webhooks', webhookColumns(c), byTrouble(d.hooks).slice(0, 12), (w) => w.id), d.hooks.length > 12 && more('webhooks', d.hooks)),
        card('Instances', table('Instances', instanceColumns, d.instances, (i) => i.name)),
        h('p', { class: 'foot' }, d.storage && ['Storage: ', h('code', null, d.storage), '. '], here(c)),
      ];
    },
  };
  return view;
}

// worst are the first 500 of a list; where there are more, those that somebody should look at come before them.
async function worst(path, id) {
  const first = await some(path);
  if (!first.more) return first;
  const bad = await some(path, { trouble: true }), ids = new Set(bad.map(id));
  return Object.assign([...bad, ...first.filter((x) => !ids.has(id(x)))], { more: true, unreadable: first.unreadable });
}

// here says whose figures those are that no instance shares.
export const here = (c) => ['What is in flight, and each webhook\'s state, rate and counters, are those of ', h('code', null, c.me.instance ?? 'the process that answers'), ', which answered; the other figures are of all instances.'];

const more = (page, list) => h('p', { class: 'more' }, h('a', { href: `#/${page}` }, list.more ? `All ${page}` : `All ${number(list.length)}`));

// counted is whether the dead letters of all queues could be.
const counted = (queues) => queues.every((q) => q.dead_letters);

function head(list, d) {
  const bad = list.filter((t) => t.kind === 'bad').length;
  if (bad) return h('p', { class: 'verdict bad' }, badge('bad', bad === 1 ? 'One thing needs you' : `${bad} things need you`));
  if (list.length) return h('p', { class: 'verdict warn' }, badge('warn', list.length === 1 ? 'One thing to know' : `${list.length} things to know`));
  return h('p', { class: 'verdict ok' }, badge('ok', d.hooks.length ? 'All is well' : 'Up and waiting for its first webhook'));
}

function trouble(t) {
  const [first, rest] = sentences(t.text);
  return h('li', { key: t.id, class: `trouble ${t.kind}` },
    h('div', null, h('h2', null, badge(t.kind, t.word), ' ', h('a', { href: t.href }, t.title)), h('p', null, told(first), t.since && [' (', when(t.since), ')']), rest && h('details', null, h('summary', null, 'More'), h('p', null, told(rest)))),
    t.action ?? h('a', { class: 'button', href: t.href }, 'Look'));
}

// troubles are what somebody should know, the worst first.
export function troubles(d, c) {
  const list = [];
  for (const check of d.checks.filter((k) => !k.ok)) {
    list.push({ kind: d.ready ? 'warn' : 'bad', word: 'check fails', id: `check ${check.name}`, title: check.name, text: check.detail || 'Sign in with a key that may read to see why.', href: check.name.startsWith('queue ') ? c.href('queues', check.name.slice(6)) : '#/' });
  }
  for (const w of d.hooks) list.push(...ofWebhook(w, c));
  for (const u of d.hooks.unreadable) list.push({ kind: 'bad', word: 'unreadable', id: `row ${u.id}`, title: `Registration ${u.id}`, text: u.problem, href: '#/webhooks' });
  for (const q of d.queues) list.push(...ofQueue(q, c));
  for (const i of d.instances) {
    if (!i.alive) list.push({ kind: 'warn', word: 'silent', id: `instance ${i.name}`, title: `Instance ${i.name}`, text: 'It did not say that it stops, and has not been seen since.', since: i.seen_at, href: '#/' });
    else if (!i.ready && !i.this) list.push({ kind: 'bad', word: 'not ready', id: `instance ${i.name}`, title: `Instance ${i.name}`, text: i.trouble ? `These checks failed there: ${i.trouble}.` : 'It says that requests should go elsewhere.', since: i.seen_at, href: '#/' });
  }
  const order = { bad: 0, warn: 1, wait: 2 };
  return list.sort((a, b) => order[a.kind] - order[b.kind]);
}

function ofWebhook(w, c) {
  const s = w.status, title = w.name || w.id, href = c.href('webhooks', w.id);
  const enable = c.can('operate') && button('Enable', () => switchWebhook(c, w), { class: 'main' });
  if (!w.enabled) {
    if (!w.disabled_reason || w.disabled_reason === 'operator') return [];
    const why = { gone: 'It answered 410 Gone, so nothing is sent to it until it is enabled.', failing: 'It failed for so long that it was disabled; its messages are held.' }[w.disabled_reason];
    return [{ kind: 'bad', word: 'disabled', id: w.id, title, text: why ?? s?.text ?? 'An answer of its own disabled it; its messages are held.', since: w.disabled_at, href, action: enable }];
  }
  if (!s) return [];
  if (['no_token', 'failing', 'probing'].includes(s.state)) return [{ kind: 'bad', word: s.state.replace('_', ' '), id: w.id, title, text: s.text, since: s.failing_since, href }];
  if (refuses(s)) return [{ kind: 'bad', word: 'refuses', id: w.id, title, text: s.recent_posts === 1 ? 'It refused the one POST that it lately got; a message that is refused mostly becomes a dead letter.' : `It refused ${s.recent_refused} of the last ${s.recent_posts} POSTs; a message that is refused mostly becomes a dead letter.`, since: s.last_failure_at, href: c.href('dead-letters', { webhook: w.id }) }];
  if (s.state === 'paused' || s.state === 'limited') return [{ kind: 'warn', word: s.state, id: w.id, title, text: s.text, href }];
  if (s.failing_since) return [{ kind: 'warn', word: 'fails', id: w.id, title, text: `${plural(s.failed_messages, 'message has', 'messages have')} failed since its last 2xx.`, since: s.failing_since, href }];
  return [];
}

function ofQueue(q, c) {
  const list = [], href = c.href('queues', q.name);
  const failed = q.poller?.last_error && Date.parse(q.poller.last_error_at) >= Date.parse(q.poller.last_poll_at ?? 0);
  if (failed) list.push({ kind: 'bad', word: 'can\'t receive', id: `poller ${q.name}`, title: q.name, text: q.poller.last_error, since: q.poller.last_error_at, href });
  if (q.poller?.gone_at) list.push({ kind: 'warn', word: 'queue gone', id: `gone ${q.name}`, title: q.name, text: 'Somebody deleted the queue with all that was on it; the next publish creates it anew.', since: q.poller.gone_at, href });
  const dead = q.dead_letters;
  if (!dead) list.push({ kind: 'warn', word: 'not counted', id: `uncounted ${q.name}`, title: q.name, text: 'Its dead letters could not be counted: the check "storage" of /readyz and the log say why.', href });
  if (dead && dead.level !== 'ok') list.push({ kind: dead.level === 'critical' ? 'bad' : 'warn', word: 'dead letters', id: `dead ${q.name}`, title: q.name, text: dead.text ?? `${dead.waiting} wait.`, href: c.href('dead-letters', { queue: q.name }) });
  if (q.held) list.push({ kind: 'warn', word: 'held', id: `held ${q.name}`, title: q.name, text: 'Its last webhook was deleted while messages were on it; they wait for a new one, and become dead letters before they expire.', since: q.held.since, href });
  else if (q.webhooks.length === 0 && q.depth?.total > 0 && q.poller) list.push({ kind: 'warn', word: 'no webhook', id: `none ${q.name}`, title: q.name, text: `${plural(q.depth.total, 'message')} on it, and no webhook takes them.`, href });
  return list;
}

const rank = (w) => (!w.enabled ? (w.disabled_reason === 'operator' ? 7 : 0) : { no_token: 1, failing: 1, probing: 2, paused: 3, limited: 4, busy: 5 }[w.status?.state] ?? (refuses(w.status) ? 2 : 6));
const byTrouble = (hooks) => [...hooks].sort((a, b) => rank(a) - rank(b));

// figures are what one wants to know first: of all instances in the last 15 minutes, and what there is now.
function figures(d) {
  const tile = (text, value, href, line, kind) => h('a', { class: `tile ${kind ?? ''}`, href }, h('span', { class: 'name' }, text), h('strong', null, value), plot(line, `${text}, each of the last minutes`));
  const few = !d.queues.more, sum = (of) => d.queues.filter((q) => q.webhooks.length).reduce((n, q) => n + (of(q) ?? 0), 0); // what is on others, such as poison queues, waits for nobody
  const late = d.late, dead = d.queues.reduce((n, q) => n + (q.dead_letters?.waiting ?? 0), 0), exact = d.queues.every((q) => q.dead_letters?.exact !== false);
  return h('div', { class: 'tiles' },
    late ? tile('Delivered', rate(late.delivered / late.seconds), '#/webhooks', late.lines.delivered) : tile('POSTs from here', rate(d.hooks.reduce((n, w) => n + (w.status?.rate_per_second ?? 0), 0)), '#/webhooks'),
    tile('Not taken', late ? percent(late.all - late.by[0], late.all) : '–', '#/messages', late?.lines.refused, late && late.all > late.by[0] ? 'warn' : ''),
    tile('A POST takes, p95', late?.took ? span(seconds(late.took.p95)) : '–', '#/webhooks', late?.lines.took),
    tile('Waiting', number(few ? sum((q) => q.depth?.visible) : late?.lines.depth.findLast((n) => n !== null)), '#/queues', late?.lines.depth),
    tile('Oldest that waits', late?.oldest === undefined ? '–' : late.oldest ? span(late.oldest) : 'none', '#/queues', late?.lines.oldest),
    tile('In flight here', number(few ? sum((q) => q.depth?.in_flight) : d.instances.find((i) => i.this)?.in_flight), '#/queues'),
    tile('Dead letters', counted(d.queues) ? `${number(dead)}${exact && few ? '' : '+'}` : '–', '#/dead-letters', null, dead ? 'bad' : ''));
}

// first is for somebody who sees pushlease for the first time.
function first() {
  return card('Begin here', h('p', null, 'No webhook is registered. Register one on a queue, then publish a message:'),
    copyable(curl('POST', '/webhooks', { queue: 'orders', url: 'https://example.com/hook' })),
    copyable(curl('POST', '/queues/orders/messages', { order: 1 })),
    h('p', { class: 'dim' }, 'No receiver at hand? ', h('code', null, 'pushlease listen'), ' prints what it is sent.'));
}

const instanceColumns = [
  { head: 'Instance', cell: (i) => [i.name, i.this && h('span', { class: 'dim' }, ' (answers here)')] },
  { head: 'State', cell: (i) => (!i.alive ? badge('warn', 'silent') : i.ready ? badge('ok', 'ready') : badge('bad', 'not ready', i.trouble)) },
  { head: 'In flight', num: true, cell: (i) => number(i.in_flight) },
  { head: 'Queues', num: true, low: true, cell: (i) => number(i.queues) },
  { head: 'Version', low: true, cell: (i) => i.version || '–' },
  { head: 'Mode', lower: true, cell: (i) => i.mode || '–' },
  { head: 'Up since', low: true, cell: (i) => when(i.started_at) },
  { head: 'Seen', lower: true, cell: (i) => when(i.seen_at) },
];

