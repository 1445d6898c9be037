// How the instance that answers is set up, and what its checks say.
import { badge, card, h, table } from './dom.js';
import { get, ready } from './api.js';

export function settings(_, c) {
  const may = c.can('admin');
  return {
    title: 'Settings', api: may && '/settings', every: 10000,
    async load() {
      const [checks, list] = await Promise.all([ready(), may ? get('/settings') : null]);
      return { ...checks, settings: list?.data };
    },
    draw: (d) => [
      card('Checks', table('Checks', [
        { head: 'Check', cell: (k) => k.name },
        { head: 'State', cell: (k) => (k.ok ? badge('ok', 'passes') : badge(d.ready ? 'warn' : 'bad', 'fails')) },
        { head: 'What it says', cell: (k) => k.detail || '–' },
      ], d.checks, (k) => k.name)),
      card('Settings', may ? table('Settings', [
        { head: 'Setting', cell: (s) => h('code', null, s.name.split('_').map((part, i) => [i > 0 && ['_', h('wbr')], part])) },
        { head: 'Value', cell: (s) => (s.value ? h('code', { class: 'url' }, s.value) : '–') },
        { head: 'From', low: true, cell: (s) => (s.source === 'default' ? h('span', { class: 'dim' }, 'default') : badge('info', s.source)) },
      ], d.settings, (s) => s.name) : h('p', { class: 'dim' }, 'Reading them needs a key with the scope admin.')),
      h('p', { class: 'foot' }, 'Both are those of ', h('code', null, c.me.instance ?? 'the process that answers'), '; others may have others. ', h('code', null, 'pushlease doctor'), ' finds more: it tries storage and reads the settings before a start.'),
    ],
  };
}
