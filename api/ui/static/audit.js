// Who changed what: through the API of any instance, and what was disabled by itself.
import { card, empty, h, more, table } from './dom.js';
import { some } from './api.js';
import { clock, number } from './words.js';

// actions are what the audit tells of, in words.
export const actions = {
  'webhook.created': 'registered', 'webhook.changed': 'changed', 'webhook.enabled': 'enabled', 'webhook.disabled': 'disabled', 'webhook.deleted': 'deleted the webhook',
  'queue.deleted': 'deleted the queue', 'dead_letter.deleted': 'deleted a dead letter', 'dead_letter.replayed': 'replayed a dead letter', 'dead_letters.purged': 'deleted dead letters',
  'replay.started': 'started a replay job', 'replay.canceled': 'canceled a replay job',
};

// deed is what was done, in words.
export const deed = (a) => [a.fields.join() === 'secrets' ? 'rotated the secret' : actions[a.action] ?? a.action, a.action === 'webhook.changed' && a.fields.join() !== 'secrets' ? `: ${a.fields.join(', ')}` : '', a.count ? ` (${number(a.count)})` : '', a.reason ? `: ${a.reason}` : ''].join('');

export const doer = (a) => a.key || (a.reason ? 'by itself' : 'this machine');

export function audit(at, c) {
  const q = at.query;
  const view = {
    title: 'Audit', rows: 50, every: 10000,
    get api() { return `/audit?${new URLSearchParams({ ...q, limit: 50 })}`; },
    async load() {
      const rows = await some('/audit', q, view.rows, 4);
      await c.learn(rows.filter((a) => a.action !== 'webhook.deleted').map((a) => a.webhook_id));
      return rows;
    },
    form: () => h('form', { class: 'filters', on: { submit: (e) => { e.preventDefault(); go(e.currentTarget); }, change: (e) => go(e.currentTarget) } },
      h('label', null, 'What', h('select', { name: 'action' }, [['', 'everything'], ...Object.entries(actions)].map(([value, text]) => h('option', { value, selected: (q.action ?? '') === value }, text)))),
      h('label', null, 'By the key', h('input', { name: 'key', value: q.key ?? '', autocomplete: 'off', spellcheck: 'false' })),
      h('label', null, 'Queue', h('input', { name: 'queue', value: q.queue ?? '', autocomplete: 'off', spellcheck: 'false' }))),
    draw: (rows) => (rows.length ? card(null, table('Audit', [
      { head: 'When', cell: (a) => clock(a.at) },
      { head: 'Who', cell: (a) => doer(a) },
      { head: 'What', cell: (a) => deed(a) },
      { head: 'Of', cell: (a) => of(a, c) },
      { head: 'At', lower: true, cell: (a) => a.instance || '–' },
    ], rows, (a) => `${a.at} ${a.request_id ?? ''} ${a.action} ${a.dead_letter_id ?? ''}`), rows.more && more(view, c.look))
      : empty(Object.keys(q).length ? 'No change is like that.' : 'Nobody has changed anything in the last 90 days. What is registered, changed, replayed or deleted through the API is told here.')),
  };
  const go = (form) => c.go(c.href('audit', Object.fromEntries([...new FormData(form)].map(([k, v]) => [k, v.trim()]).concat(q.webhook ? [['webhook', q.webhook]] : []))));
  return view;
}

function of(a, c) {
  if (a.dead_letter_id) return h('a', { href: c.href('dead-letters', a.dead_letter_id) }, 'the dead letter');
  if (a.replay_id) return h('a', { href: c.href('jobs', a.replay_id) }, 'the job');
  if (a.webhook_id) return h('a', { href: c.href('webhooks', a.webhook_id) }, c.called(a.webhook_id));
  return a.queue ? h('a', { href: c.href('queues', a.queue) }, a.queue) : 'all';
}
