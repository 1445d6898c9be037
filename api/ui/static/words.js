// How times, durations, numbers and states are said.
import { badge, h } from './dom.js';
import { now } from './api.js';

// span says a number of seconds shortly.
export function span(seconds) {
  const s = Math.abs(seconds);
  if (s > 0 && s < 0.0005) return '< 1 ms';
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10 && s % 1 > 0.05) return `${s.toFixed(1)} s`;
  if (s < 100) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 129600) return `${some(s / 3600)} h`;
  return `${some(s / 86400)} days`;
}

// some is a number with a tenth where that matters.
const some = (n) => (n < 9.95 ? n.toFixed(1).replace('.0', '') : Math.round(n));

const unit = { h: 3600, m: 60, s: 1, ms: 1e-3, 'µs': 1e-6, us: 1e-6, ns: 1e-9 };

// seconds reads a Go duration, such as 1m30.5s.
export function seconds(duration) {
  let sum = 0;
  for (const [, n, u] of String(duration).matchAll(/([\d.]+)(h|ms|m|s|µs|us|ns)/g)) sum += n * unit[u];
  return sum;
}

// took says a Go duration shortly, with the exact one as title.
export function took(duration) {
  return duration && h('span', { title: duration }, span(seconds(duration)));
}

export const number = (n) => (typeof n === 'number' ? n.toLocaleString('en') : '–');

export const rate = (n) => (n === 0 ? '0/s' : n < 10 ? `${n.toFixed(n < 1 ? 2 : 1)}/s` : `${Math.round(n)}/s`);

// relative says when a time is, as seen from now.
export function relative(at) {
  const s = (at - now()) / 1000;
  if (Math.abs(s) < 1) return 'now';
  if (Math.abs(s) >= 59.5 && Math.abs(s) < 120) return s < 0 ? '1 min ago' : 'in 1 min';
  return s < 0 ? `${span(Math.max(1, Math.round(-s)))} ago` : `in ${span(Math.max(1, Math.round(s)))}`;
}

// when is a time: relative, kept so by tick, with the exact one as title.
export function when(iso) {
  if (!iso) return null;
  const at = Date.parse(iso);
  return h('time', { datetime: iso, title: exact(at) }, relative(at));
}

// due is a time at which something is to be done: it may be over although nothing was, as when a webhook is held.
export function due(iso) {
  const at = Date.parse(iso);
  return h('time', { datetime: iso, title: exact(at), 'data-due': true }, dueText(at));
}

const dueText = (at) => (at < now() - 1000 ? `due ${relative(at)}` : relative(at));

export function exact(at) {
  return `${new Date(at).toISOString().replace('T', ' ').replace('Z', ' UTC')} · here ${new Date(at).toLocaleString()}`;
}

// clock is the time of day of a time, with the exact one as title.
export function clock(iso) {
  const d = new Date(iso);
  const two = (n) => String(n).padStart(2, '0');
  const day = d.toDateString() === new Date(now()).toDateString() ? '' : `${two(d.getMonth() + 1)}-${two(d.getDate())} `;
  return h('time', { datetime: iso, title: exact(d.getTime()), 'data-exact': true }, day + d.toLocaleTimeString('en-GB'));
}

// tick says all relative times anew.
export function tick() {
  for (const t of document.querySelectorAll('time:not([data-exact])')) {
    const at = Date.parse(t.dateTime), text = t.hasAttribute('data-due') ? dueText(at) : relative(at);
    if (t.textContent !== text) t.textContent = text;
  }
}

// told is a text of the server's in which times are as everywhere on the page.
export const told = (text) => String(text ?? '').split(/(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)/).map((part, i) => (i % 2 ? clock(part) : part));

// sentences are the first one of a text, and what follows it.
export function sentences(text) {
  const first = (text ?? '').split(/(?<=[.!?])\s+(?=[A-Z])/)[0];
  return [first, (text ?? '').slice(first.length).trim()];
}

export const plural = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;

// refuses reports whether a webhook that looks healthy refuses half of what it lately got.
export const refuses = (s) => !!s && ['healthy', 'busy'].includes(s.state) && s.recent_refused > 0 && 2 * s.recent_refused >= s.recent_posts;

// stateKind is how a flow state is drawn.
export const stateKind = (state) => ({ healthy: 'ok', busy: 'info', limited: 'warn', paused: 'wait', probing: 'wait', failing: 'bad', no_token: 'bad', disabled: 'off' })[state] ?? 'info';

// fares is how a webhook is.
export function fares(w) {
  if (!w.enabled) return w.disabled_reason && w.disabled_reason !== 'operator' ? badge('bad', `disabled: ${w.disabled_reason}`) : badge('off', 'disabled');
  const s = w.status;
  if (!s) return badge('off', 'not met yet', 'This process has not sent to it since it started.');
  if (refuses(s)) return badge('warn', `refuses ${s.recent_refused} of ${s.recent_posts}`, s.text);
  if (s.failing_since && ['healthy', 'busy'].includes(s.state)) return badge('warn', 'fails', `${s.failed_messages} messages have failed since its last 2xx.`);
  return badge(stateKind(s.state), s.state.replace('_', ' '), s.text);
}

const kinds = {
  delivered: 'ok', pending: 'wait', held: 'warn', dead_lettering: 'bad', dead_lettered: 'bad', published: 'info', unmatched: 'off', duplicate: 'off', withdrawn: 'off', damaged: 'bad', lost: 'bad',
  replayed: 'info', attempt: 'info', waiting: 'bad', replaying: 'wait', running: 'wait', done: 'ok', canceled: 'off', failed: 'bad', dry_run: 'info',
};

// state is the state of a delivery, a dead letter or a job.
export const state = (name) => badge(kinds[name] ?? 'info', String(name).replaceAll('_', ' '));

// answer is what a webhook answered, or why there is none.
export function answer(a) {
  if (a.status) return badge(a.status < 300 ? 'ok' : a.status < 500 && a.status !== 429 && a.status !== 408 ? 'bad' : 'warn', String(a.status));
  return a.error_class ? badge('warn', a.error_class) : a.damaged ? badge('bad', 'damaged') : badge('off', 'no answer');
}

// short is an id where there is little room; the link that it stands in has all of it.
export const short = (id) => (id.length > 14 ? `${id.slice(0, 11)}…` : id);
