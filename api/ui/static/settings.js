// How the instance that answers is set up, what its checks say, and what it asks of storage.
import { badge, card, facts, h, table } from './dom.js';
import { counters, get, now, ready } from './api.js';
import { number, rate, span } from './words.js';

// prices are Azure's list prices for a million transactions, in dollars; a bill may say otherwise.
const prices = { queue: 0.4, table: 0.036 };
const month = 30 * 86400;

export function settings(_, c) {
  const may = c.can('admin');
  return {
    title: 'Settings', api: may && '/settings', every: 10000,
    async load() {
      const [checks, list, asked] = await Promise.all([ready(), may ? get('/settings') : null, counters(/^(pushlease_storage_transactions_total|process_start_time_seconds)/)]);
      return { ...checks, settings: list?.data, asked };
    },
    draw: (d) => [
      card('Checks', table('Checks', [
        { head: 'Check', cell: (k) => k.name },
        { head: 'State', cell: (k) => (k.ok ? badge('ok', 'passes') : badge(d.ready ? 'warn' : 'bad', 'fails')) },
        { head: 'What it says', cell: (k) => k.detail || '–' },
      ], [...d.checks].sort((a, b) => a.ok - b.ok), (k) => k.name)),
      findings(d, c),
      storage(d),
      card('Settings', may ? table('Settings', [
        { head: 'Setting', cell: (s) => h('code', null, s.name.split('_').map((part, i) => [i > 0 && ['_', h('wbr')], part])) },
        { head: 'Value', cell: (s) => (s.value ? h('code', { class: 'url' }, s.value) : '–') },
        { head: 'From', low: true, cell: (s) => (s.source === 'default' ? h('span', { class: 'dim' }, 'default') : badge('info', s.source)) },
      ], d.settings, (s) => s.name) : h('p', { class: 'dim' }, 'Reading them needs a key with the scope admin.')),
      h('p', { class: 'foot' }, 'All of it is of ', h('code', null, c.me.instance ?? 'the process that answers'), '; others may have others. ', h('code', null, 'pushlease doctor'), ' finds more: it tries storage and reads the settings before a start.'),
    ],
  };
}

// findings are what is allowed and seldom meant where others can reach it.
function findings(d, c) {
  const value = (name) => d.settings?.find((s) => s.name === name)?.value, account = d.storage && !d.storage.startsWith('sqlite:');
  const list = [
    !c.me.keys_set && ['warn', 'no API keys', 'Only this machine is served, and whoever is on it may do all. ', 'pushlease api-key new', ' makes one.'],
    value('dev') === 'true' && [account ? 'bad' : 'warn', 'dev is on', 'Webhooks may have http URLs and every private and loopback address. Leave --dev out; allow_http and allow_cidrs name the receivers in a private network.'],
    value('poison_copy') === 'false' && ['info', 'no copies', 'Dead letters are kept here alone: poison_copy is off.'],
    value('dead_letter_retention') === '0s' && ['info', 'kept for ever', 'Dead letters stay until somebody replays or deletes them: dead_letter_retention is 0s.'],
  ].filter(Boolean);
  return list.length > 0 && card('What to know of the settings', h('ul', { class: 'plain' }, list.map(([kind, word, text, command, rest]) => h('li', null, badge(kind, word), ' ', text, command && h('code', null, command), rest))));
}

// storage is what this process has asked of storage since it began, and what that costs on Azure.
function storage(d) {
  const began = d.asked.find((m) => m.name === 'process_start_time_seconds')?.value, all = d.asked.filter((m) => m.labels.service), sum = (list) => list.reduce((n, m) => n + m.value, 0);
  if (!all.length || !began) return null;
  const length = Math.max(1, now() / 1000 - began), file = d.storage?.startsWith('sqlite:');
  const dollars = Object.keys(prices).reduce((n, s) => n + sum(all.filter((m) => m.labels.service === s)) * prices[s] / 1e6, 0) * month / length;
  return card('What is asked of storage', facts(
    ['Transactions', `${number(sum(all))} in ${span(length)}, ${rate(sum(all) / length)} on average`],
    ['Costs', file ? `nothing: it is a file. On Azure as many would be about ${money(dollars)} a month.` : `about ${money(dollars)} a month at this pace, at list prices of $${prices.queue} for a million of queues and $${prices.table} of tables, without what is stored.`]),
  h('details', null, h('summary', null, 'By operation'), table('Storage transactions', [
    { head: 'Operation', cell: (m) => h('code', null, m.labels.operation) },
    { head: 'Of', cell: (m) => m.labels.service },
    { head: 'So far', num: true, cell: (m) => number(m.value) },
    { head: 'Share', low: true, num: true, cell: (m) => `${(100 * m.value / sum(all)).toFixed(1)} %` },
  ], [...all].sort((a, b) => b.value - a.value), (m) => `${m.labels.service} ${m.labels.operation}`)));
}

const money = (d) => (d < 0.01 ? 'less than $0.01' : `$${d < 100 ? d.toFixed(2) : Math.round(d)}`);
