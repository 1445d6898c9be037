// Replay jobs, and one of them.
import { button, card, empty, facts, h, share, table } from './dom.js';
import { get, part } from './api.js';
import { number, state, when } from './words.js';
import { confirm } from './dialogs.js';

const about = (j, c) => ['queue', 'reason', 'answer', 'cause', 'message', 'status', 'from', 'until'].filter((f) => j.filter[f]).map((f) => `${f} ${j.filter[f]}`).concat(j.filter.webhook ? `webhook ${c.called(j.filter.webhook)}` : []).join(', ') || 'all';
// A job that takes the newest first finds what there is while it runs: how much that will be nobody knows.
const counts = (j) => j.order === 'newest' && !j.finished_at;
const done = (j) => (counts(j) ? 0 : j.matched ? (j.replayed + j.skipped + j.failed) / j.matched : j.finished_at ? 1 : 0);
const of = (j) => (counts(j) ? `${number(j.replayed)} so far` : `${number(j.replayed)} of ${number(j.matched)}`);

export function jobs(_, c) {
  return {
    title: 'Jobs', api: '/replays', live: { type: 'job' },
    load: async () => (await get('/replays')).data,
    draw: (list) => (list.length ? card(null, table('Replay jobs', [
      { head: 'Began', cell: (j) => h('a', { href: c.href('jobs', j.id), title: j.id }, when(j.started_at)) },
      { head: 'State', cell: (j) => state(j.state) },
      { head: 'Of', low: true, cell: (j) => about(j, c) },
      { head: 'Progress', wide: true, low: true, cell: (j) => share(done(j)) },
      { head: 'Replayed', num: true, cell: (j) => of(j) },
      { head: 'Left out', num: true, lower: true, cell: (j) => number(j.skipped) },
      { head: 'Failed', num: true, lower: true, cell: (j) => number(j.failed) },
    ], list, (j) => j.id)) : empty('No job replays dead letters, and none did lately. The page of dead letters starts one, and so does:', 'pushlease dead-letters replay --queue orders --dry-run')),
  };
}

export function job(at, c) {
  const path = `/replays/${part(at.id)}`;
  const view = {
    title: 'Replay job', above: ['#/jobs', 'Jobs'], api: path, live: { type: 'job' },
    told: (event, data) => (data.id === at.id ? '' : 'other'),
    get every() { return view.data?.finished_at ? 10000 : 1000; }, // each look reads all jobs
    load: () => get(path),
    tools: () => view.data?.state === 'running' && c.can('operate') && button('Cancel it', async () => {
      if (await confirm({ title: 'Cancel the job?', ok: 'Cancel the job', danger: true, body: [h('p', null, 'Replays that are being sent are finished, and no other begins. What is not replayed stays a dead letter.')] })) await c.act('The job is canceled.', 'DELETE', path);
    }, { class: 'danger' }),
    draw: (j) => [
      h('div', { class: 'state' }, state(j.state), h('p', null, `${of(j)} replayed`, j.skipped ? `, ${number(j.skipped)} left out` : '', j.failed ? `, ${number(j.failed)} failed` : '', '.')),
      !counts(j) && h('div', { class: 'card' }, share(done(j))),
      j.last_error && h('div', { class: 'notice bad' }, j.last_error),
      card('The job', facts(['Of', about(j, c)], ['Began', when(j.started_at)], ['Ended', j.finished_at && when(j.finished_at)], ['At most', `${j.rate} a second`], ['Limit', j.limit], ['Order', `${j.order} first`],
        ['Left out', Object.entries(j.skipped_because).filter(([, n]) => n).map(([why, n]) => `${number(n)} ${why.replaceAll('_', ' ')}`).join(', ') || null], ['Id', h('code', null, j.id)])),
      h('p', { class: 'foot' }, 'It says what was sent; how each replay ended is in the message\'s own timeline.'),
    ],
  };
  return view;
}

