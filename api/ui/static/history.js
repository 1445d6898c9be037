// What happened over time: drawn of what all instances wrote of each minute and hour.
import { card, h, svg, table } from './dom.js';
import { Fault, get, now } from './api.js';
import { clock, number, rate, seconds, span as said } from './words.js';

const spans = { '15m': ['15 min', 900], '1h': ['1 hour', 3600], '6h': ['6 hours', 21600], '24h': ['1 day', 86400], '7d': ['7 days', 604800], '90d': ['90 days', 7776000] };
const usual = '1h';
const stepWords = { 60: 'a minute', 300: '5 min', 900: '15 min', 3600: 'an hour', 21600: '6 h', 86400: 'a day' };
const fresh = 20000; // the server has something new once a minute

const kinds = [
  { name: '2xx', kind: 'ok', of: (o) => o === '2xx' },
  { name: '3xx, 4xx', kind: 'warn', of: (o) => o === '3xx' || o === '4xx' },
  { name: '5xx', kind: 'bad', of: (o) => o === '5xx' },
  { name: 'no answer', kind: 'off', of: (o) => !['2xx', '3xx', '4xx', '5xx'].includes(o) },
];

const cache = new Map(); // what was read, by what was asked for

async function read(name, query) {
  const key = JSON.stringify([name, query]), had = cache.get(key);
  if (had && Date.now() - had.at < fresh) return had.answer;
  const until = now();
  const answer = await get('/stats', { ...query, from: new Date(until - spans[name][1] * 1000).toISOString(), until: new Date(until).toISOString() });
  if (cache.size > 50) cache.clear();
  cache.set(key, { at: Date.now(), answer });
  return answer;
}

// history reads the time that the address names. Where that can't be read the rest of the page still is.
export async function history(at, query) {
  const name = Object.hasOwn(spans, at.query.span ?? '') ? at.query.span : usual;
  try {
    return { name, of: query?.queue ? 'Messages on it' : 'Messages on the queues', stats: await read(name, query) };
  } catch (e) {
    if (!(e instanceof Fault)) throw e;
    return { name, fault: e };
  }
}

// changes are what was changed of a webhook in the time that the address names, newest first.
export async function changes(at, webhook) {
  const name = Object.hasOwn(spans, at.query.span ?? '') ? at.query.span : usual, key = JSON.stringify(['changes', name, webhook]), had = cache.get(key);
  if (had && Date.now() - had.at < fresh) return had.answer;
  try {
    const answer = (await get('/audit', { webhook, from: new Date(now() - spans[name][1] * 1000).toISOString(), limit: 20 })).data;
    cache.set(key, { at: Date.now(), answer });
    return answer;
  } catch (e) {
    if (!(e instanceof Fault)) throw e;
    return [];
  }
}

// grouped is what was counted, by queue or webhook. `of` tells one of them: undefined where nothing was counted of it,
// null where that is not known.
async function grouped(name, query, make) {
  try {
    const stats = await read(name, query), by = new Map(stats.groups.map((g) => [g.key, g]));
    const whole = stats.others === 0 && !by.has('other');
    return { of: (key) => (by.has(key) ? make(stats, by.get(key)) : whole ? undefined : null) };
  } catch (e) {
    if (!(e instanceof Fault)) throw e;
    return { of: () => null };
  }
}

// byWebhook is each webhook's day, by the hour.
export const byWebhook = () => grouped('24h', { group_by: 'webhook', step: '1h' }, (stats, g) =>
  ({ ...sums(g.total), took: g.total.took, line: steps(stats, g.points).map((s) => s.point?.delivered ?? 0) }));

// byQueue is each queue's last hour, by the minute.
export const byQueue = () => grouped('1h', { group_by: 'queue', step: '1m' }, (stats, g) => ({ line: depths(stats, g.points), oldest: oldest(g.points) }));

const depths = (stats, points) => steps(stats, points).map((s) => (s.point?.depth ? s.point.depth.visible + s.point.depth.hidden : null));

// oldest is how long the oldest message had waited when that was last counted; undefined where it was not within five minutes.
function oldest(points) {
  const last = points.findLast((p) => p.depth);
  return last && now() - Date.parse(last.at) < 360000 ? seconds(last.depth.oldest) : undefined;
}

// lately is what all instances did in the last minutes that are over.
export async function lately() {
  try {
    const stats = await read('15m', { step: '1m' }), g = stats.groups[0], all = g && steps(stats, g.points).filter((s) => s.at + s.length <= now());
    if (!all?.length) return null;
    return {
      ...sums(g.total), took: g.total.took, delivered: g.total.delivered, oldest: oldest(g.points), seconds: (now() - Date.parse(g.points[0].at)) / 1000,
      lines: { delivered: all.map((s) => s.point?.delivered ?? 0), refused: all.map((s) => (s.point ? sums(s.point).all - sums(s.point).by[0] : 0)), took: all.map((s) => (s.point?.took ? seconds(s.point.took.p95) : null)),
        depth: all.map((s) => (s.point?.depth ? s.point.depth.visible : null)), oldest: all.map((s) => (s.point?.depth ? seconds(s.point.depth.oldest) : null)) },
    };
  } catch (e) {
    if (!(e instanceof Fault)) throw e;
    return null;
  }
}

// sums are the attempts of a point by kind, and all of them.
function sums(p) {
  const by = kinds.map((k) => Object.entries(p.attempts).reduce((n, [o, m]) => n + (k.of(o) ? m : 0), 0));
  return { by, all: by.reduce((a, b) => a + b, 0) };
}

// percent never says all or none where it is not so.
export function percent(part, all) {
  if (!all) return '–';
  if (part === all || part === 0) return `${100 * part / all} %`;
  const p = 100 * part / all;
  return p < 0.1 ? '< 0.1 %' : p > 99.9 ? '> 99.9 %' : `${p.toFixed(1)} %`;
}

// steps are all steps of the time, those in which nothing was counted too.
function steps(stats, points) {
  const length = seconds(stats.step) * 1000, first = Date.parse(stats.from), by = new Map(points.map((p) => [Date.parse(p.at), p]));
  const n = Math.max(1, Math.ceil((Date.parse(stats.until) - first) / length));
  return Array.from({ length: n }, (_, i) => ({ at: first + i * length, length, point: by.get(first + i * length) }));
}

// historyCard shows the history that was read; address makes the link to another time. marks are what happened meanwhile, each {at, text, word}.
export function historyCard({ name, of, stats, fault }, address, marks = []) {
  const choose = h('div', { class: 'switch', role: 'group', 'aria-label': 'How far back' },
    Object.entries(spans).map(([key, [text]]) => h('a', { key, href: address({ span: key === usual ? '' : key }), 'aria-current': key === name ? 'true' : null }, text)));
  if (!stats) return card('What happened', choose, h('p', { class: 'dim' }, fault ? `The history can't be read: ${fault.message}` : ''));
  const group = stats.groups[0];
  if (!group) return card('What happened', choose, h('p', { class: 'dim' }, 'Nothing was counted in this time. Each minute is there when it is over. Of more than 300 webhooks in a minute an instance counts the rest together.'));
  const all = Object.assign(steps(stats, group.points), { marks }), total = sums(group.total);
  return h('section', { class: 'card history' }, h('h2', null, 'What happened'), choose,
    sumsOf(group.total, total, Math.min(spans[name][1], (now() - all[0].at) / 1000)),
    total.all > 0 && bars(all, total, stepWords[all[0].length / 1000]),
    group.total.took && line(all, 'How long POSTs took, p95', (p) => p.took && seconds(p.took.p95), said),
    group.points.some((p) => p.depth) && line(all, of, (p) => p.depth && p.depth.visible + p.depth.hidden, number),
    group.points.some((p) => p.depth) && line(all, 'Age of the oldest that waits', (p) => p.depth && seconds(p.depth.oldest), said),
    marks.length > 0 && h('ul', { class: 'plain marks', 'aria-label': 'Changes in this time' }, marks.map((m) => h('li', null, clock(m.at), ' ', m.text))),
    asTable(all));
}

function sumsOf(t, { by, all }, length) {
  const fact = (word, value, title) => h('div', { title }, h('dt', null, word), h('dd', null, value));
  return h('dl', { class: 'sums' },
    fact('Delivered', [number(t.delivered), h('span', { class: 'dim' }, ` ${rate(t.delivered / length)}`)]),
    fact('Not taken', all ? percent(all - by[0], all) : '–', 'The share of POSTs that were not answered 2xx'),
    fact('Held', number(t.held), 'Times that a delivery had to wait for its webhook'),
    fact('Dead letters', number(t.dead_letters)),
    t.took && fact('A POST takes', [said(seconds(t.took.p50)), h('span', { class: 'dim' }, ` p95 ${said(seconds(t.took.p95))}`)]),
    t.delay && fact('From publish to 2xx', [said(seconds(t.delay.p50)), h('span', { class: 'dim' }, ` p95 ${said(seconds(t.delay.p95))}`)]));
}

// plotted is a picture over time, with its largest value above and its times below.
function plotted(all, label, most, picture, legend) {
  const time = (i) => clock(new Date(all[i].at).toISOString());
  return h('figure', { class: 'over-time' }, h('figcaption', null, label, h('span', { class: 'dim' }, most)),
    svg('svg', { viewBox: `0 0 ${all.length} 100`, preserveAspectRatio: 'none', role: 'img', 'aria-label': `${label}. ${most}` }, picture, marked(all)),
    h('div', { class: 'axis', 'aria-hidden': 'true' }, time(0), all.length > 2 && time(Math.floor(all.length / 2)), time(all.length - 1)), legend);
}

// marked are the marks of a picture: a line each, where something was changed.
const marked = (all) => (all.marks ?? []).map((m) => {
  const x = ((Date.parse(m.at) - all[0].at) / all[0].length).toFixed(3);
  return x >= 0 && x <= all.length && svg('g', null, svg('title', null, `${new Date(m.at).toLocaleString()}: ${m.text}`), svg('line', { class: 'mark', x1: x, x2: x, y1: 0, y2: 100 }));
});

function bars(all, total, each) {
  const sum = all.map((s) => (s.point ? sums(s.point) : { by: [0, 0, 0, 0], all: 0 }));
  const most = Math.max(...sum.map((s) => s.all), 1);
  const picture = all.map((s, i) => {
    if (!sum[i].all) return null;
    let top = 100;
    const parts = kinds.map((k, n) => {
      const height = 100 * sum[i].by[n] / most;
      top -= height;
      return height > 0 && svg('rect', { class: `bar ${k.kind}`, x: i + 0.08, width: 0.84, y: top.toFixed(2), height: height.toFixed(2) });
    });
    return svg('g', null, svg('title', null, `${new Date(s.at).toLocaleString()}: ${inWords(sum[i].by)}`), svg('rect', { class: 'hit', x: i, width: 1, y: 0, height: 100 }), parts);
  });
  const legend = h('ul', { class: 'legend' }, kinds.map((k, n) => total.by[n] > 0 && h('li', null, h('span', { class: `dot ${k.kind}`, 'aria-hidden': 'true' }), `${k.name} ${number(total.by[n])}`)));
  return plotted(all, 'Attempts', `at most ${number(most)} in ${each}`, picture, legend);
}

const inWords = (by) => kinds.map((k, n) => (by[n] ? `${number(by[n])} ${k.name}` : '')).filter(Boolean).join(', ') || 'no attempt';

// line draws one number over time; it has gaps where there is none.
function line(all, label, value, say) {
  const values = all.map((s) => (s.point ? value(s.point) ?? null : null));
  const most = Math.max(...values.filter((v) => v !== null));
  if (!Number.isFinite(most)) return null;
  const y = (v) => (96 - 92 * v / (most || 1)).toFixed(2);
  const picture = [], run = [];
  const end = () => {
    if (run.length === 1) picture.push(svg('line', { class: 'trace', x1: run[0][0] - 0.3, x2: run[0][0] + 0.3, y1: run[0][1], y2: run[0][1] }));
    else if (run.length) picture.push(svg('polyline', { class: 'trace', points: run.map((p) => p.join(',')).join(' ') }));
    run.length = 0;
  };
  values.forEach((v, i) => (v === null ? end() : run.push([i + 0.5, y(v)])));
  end();
  values.forEach((v, i) => v !== null && picture.push(svg('rect', { class: 'hit', x: i, width: 1, y: 0, height: 100 }, svg('title', null, `${new Date(all[i].at).toLocaleString()}: ${say(v)}`))));
  return plotted(all, label, `at most ${say(most)}`, picture);
}

const rows = 100;

// asTable has the same for who can't see the pictures.
function asTable(all) {
  const some = all.filter((s) => s.point).reverse(), shown = some.slice(0, rows);
  return h('details', null, h('summary', null, 'As a table'), table('What happened', [
    { head: 'From', cell: (s) => clock(new Date(s.at).toISOString()) },
    ...kinds.map((k, n) => ({ head: k.name, num: true, low: n === 1, cell: (s) => number(sums(s.point).by[n]) })),
    { head: 'Delivered', num: true, low: true, cell: (s) => number(s.point.delivered) },
    { head: 'Held', num: true, lower: true, cell: (s) => number(s.point.held) },
    { head: 'Dead letters', num: true, lower: true, cell: (s) => number(s.point.dead_letters) },
    { head: 'p95', num: true, low: true, cell: (s) => (s.point.took ? said(seconds(s.point.took.p95)) : '–') },
  ], shown, (s) => s.at), some.length > shown.length && h('p', { class: 'dim' }, `The last ${rows} of ${some.length}.`));
}
