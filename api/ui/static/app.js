// The frame: which view the address names, drawing it again every few seconds while somebody
// looks, the keyboard, and signing in.
import { badge, draw, h, button } from './dom.js';
import { Fault, ask, clockOff, curl, get, keysOff, now, part, signIn, signOut, some, whoAmI } from './api.js';
import { clock, exact, span, tick } from './words.js';
import { confirm, help, open as dialogOpen } from './dialogs.js';
import { overview } from './overview.js';
import { queues, queue } from './queues.js';
import { webhooks, webhook } from './webhooks.js';
import { messages, message } from './messages.js';
import { deadLetters, deadLetter } from './deadletters.js';
import { jobs, job } from './jobs.js';
import { audit } from './audit.js';
import { settings } from './settings.js';
import { follow } from './stream.js';

const pages = [
  { path: '', name: 'Overview', key: 'o', list: overview },
  { path: 'queues', name: 'Queues', key: 'q', list: queues, one: queue },
  { path: 'webhooks', name: 'Webhooks', key: 'w', list: webhooks, one: webhook },
  { path: 'messages', name: 'Messages', key: 'm', list: messages, one: message },
  { path: 'dead-letters', name: 'Dead letters', key: 'd', list: deadLetters, one: deadLetter },
  { path: 'jobs', name: 'Jobs', key: 'b', list: jobs, one: job },
  { path: 'audit', name: 'Audit', key: 'a', list: audit, needs: 'operate' },
  { path: 'settings', name: 'Settings', key: 's', list: settings },
];

const every = 5000; // between two looks; one begins after the other has ended
const $ = (id) => document.getElementById(id);
const main = $('main'), notice = $('notice'), nav = $('nav'), who = $('who'), find = $('find');

let me = null; // who is signed in, and what they may do
let view = null, at = null; // what is shown, and the address that it is for
let last = null; // when the server last answered
let fault = null; // why it did not, since
let timer = 0, looking = null, began = 0;
let stream = null, lastLook = 0, busy = false, again = false, redraw = 0;
let rest = 0; // until when no event has the server asked: what took long is asked for less often

// plain undoes the escapes of a part of the address; one that somebody wrote with a bare % is taken as it is.
function plain(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

// read takes the address apart: #/page/id?query.
function read() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const [page, ...id] = path.split('/');
  const found = pages.find((p) => p.path === page);
  return { hash: location.hash, page: found ?? null, id: plain(id.join('/')), query: Object.fromEntries(new URLSearchParams(query)) };
}

// names are the webhooks' names by id, as far as they are known: of the first 500, and of those that were shown.
const names = new Map();
let knowing = null;

function know() {
  knowing ??= some('/webhooks').then((list) => list.forEach((w) => names.set(w.id, w.name)), () => { knowing = null; });
  return knowing;
}

// context is what views are given.
const context = {
  can: (scope) => !!me?.scopes.includes(scope),
  get me() { return me; },
  names,
  href(...parts) {
    const query = typeof parts.at(-1) === 'object' ? new URLSearchParams(Object.entries(parts.pop()).filter(([, v]) => v)).toString() : '';
    return `#/${parts.map(part).join('/')}${query && `?${query}`}`;
  },
  go: (href) => { location.hash = href; },
  look: () => look(),
  redraw: () => show(),
  say: toast,
  // learn reads the names of webhooks that are to be shown.
  async learn(ids) {
    await know();
    await Promise.all([...new Set(ids)].filter((id) => id && !names.has(id)).map((id) => get(`/webhooks/${part(id)}`).then((w) => names.set(id, w.name), (e) => {
      if (!(e instanceof Fault)) throw e;
      if (e.status === 404) names.set(id, '');
    })));
  },
  // idOf is the id of the webhook of that name, which is what the page shows, where no other has it.
  async idOf(text) {
    if (!text || names.has(text)) return text;
    const of = (await some('/webhooks', { contains: text }).catch(() => [])).filter((w) => w.name === text);
    return of.length === 1 ? of[0].id : text;
  },
  called: (id) => (id ? names.get(id) || id : 'all webhooks'),
  // act makes a change: it says what happened, and looks again.
  async act(done, method, path, body, options) {
    try {
      const answer = await ask(method, path, { body, ...options });
      if (done) toast(done);
      look();
      return answer ?? {};
    } catch (e) {
      if (!(e instanceof Fault)) throw e;
      if (e.status === 401) { look(); return null; }
      await confirm({ title: e.problem.title || 'That did not work', body: [h('p', null, e.message), ...e.cures.map((c) => h('p', { class: 'dim' }, c))], ok: 'Close', only: true });
      return null;
    }
  },
};

function toast(text) {
  draw($('toast'), h('p', null, text));
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => draw($('toast')), 5000);
}

// arrive shows what the address names.
function arrive() {
  const to = read();
  if (at && view && to.hash === at.hash) return;
  const moved = !at || to.page !== at.page || to.id !== at.id;
  at = to;
  const make = at.page && (at.id ? at.page.one : at.page.list);
  const before = view;
  view = make ? make(at, context) : null;
  if (view) {
    // While only a filter or the time changes, what is there stays until the answer comes: the form has the focus. A view of
    // its own shows other things than the one that the rest of the address names.
    view.data = moved || view.own || before?.own ? undefined : before?.data;
    view.stale = view.data !== undefined;
  }
  if (moved) { draw(main); scrollTo(0, 0); }
  fault = fault?.away ? fault : null;
  drawFrame();
  show();
  if (moved && !main.contains(document.activeElement) && document.activeElement !== find) main.focus({ preventScroll: true });
  look();
  listen();
}

// listen follows what the view wants of the stream, while somebody looks.
function listen() {
  stream?.stop();
  stream = null;
  if (!view?.live || !me || document.visibilityState !== 'visible') return;
  const of = view;
  stream = follow(view.live, (event, data) => of === view && told(of, event, data), () => of === view && drawFrame());
}

// told is what happens with an event: the view takes it into what it shows, or the server is asked, soon and not again and again.
function told(of, event, data) {
  if (event !== 'gap' && of.told && of.data !== undefined) {
    const taken = of.told(event, data, of.data);
    if (taken === 'other') return;
    if (taken === 'taken') {
      of.heard = (of.heard ?? []).filter((e) => Date.now() - e.at < 10000).slice(-100).concat({ event, data, at: Date.now() });
      redraw ||= setTimeout(() => { redraw = 0; show(); }, 200); // of a thousand events a second too
      return;
    }
  }
  if (busy) { again = true; return; } // what is asked for at present may be from before
  soon(of);
}

// soon looks because of an event: not at once after another look, and less often where one takes long.
function soon(of) {
  clearTimeout(timer);
  timer = setTimeout(() => look(), Math.max(0, rest - Date.now(), lastLook + (of.gap ?? 1000) - Date.now()));
}

// awake goes on at once where a machine slept, or the page was out of sight.
function awake() {
  if (!me) return;
  if (stream) stream.anew(); else listen();
  look();
}

// look asks for what is shown, and draws it. A later one takes the place of an earlier one.
async function look() {
  clearTimeout(timer);
  if (!view || !me) return;
  const mine = looking = {}, of = view, asked = performance.now();
  [lastLook, busy, again] = [Date.now(), true, false];
  try {
    await refresh(mine, of);
  } finally { // whatever went wrong, it is looked at again; what takes long to read, less often
    const long = fault ? 0 : 4 * (performance.now() - asked);
    if (mine === looking) [busy, rest] = [false, Date.now() + long];
    if (mine === looking && of === view && me && document.visibilityState === 'visible') {
      if (again) soon(of); else timer = setTimeout(look, Math.max(pause(of), long));
    }
  }
}

// pause is the wait for the next look. A server that does not answer costs nobody anything; one whose
// storage is away is not asked more often than one that is well, nor by all pages at once.
function pause(of) {
  const usual = (of.every ?? every) * (stream?.live ? 2 : 1);
  if (!fault) return usual;
  return fault.status === 0 ? every / 2 : Math.max(usual, every) * (1 + Math.random() / 2);
}

async function refresh(mine, of) {
  try {
    const data = await of.load();
    if (mine !== looking || of !== view) return;
    [of.data, of.stale, of.error, fault, last] = [data, false, null, null, now()];
    for (const e of of.heard ?? []) if (Date.now() - e.at < 10000) of.told(e.event, e.data, data); // the answer may be from before
  } catch (e) {
    if (mine !== looking || of !== view) return;
    if (of.stale) [of.data, of.stale] = [undefined, false]; // it was the answer to another question
    if (!(e instanceof Fault)) {
      of.error = e;
      show();
      throw e;
    }
    // Who has just been told that the key is good and is refused all the same would ask without end.
    if ((e.status === 401 || (e.status === 403 && !me.signed_in && me.keys_set)) && Date.now() - began > 1000) { await begin(); return; }
    if (e.away) fault = Object.assign(e, { since: fault?.since ?? Date.now() });
    else [of.error, fault] = [e, null];
  }
  show();
}

function show() {
  try {
    drawView();
  } catch (e) {
    draw(main, problem(e));
    throw e;
  }
}

function drawView() {
  if (!me) return;
  drawNotice();
  if (!view) {
    draw(main, h('div', { class: 'empty' }, h('h1', null, 'There is no such page'), h('p', null, h('a', { href: '#/' }, 'Go to the overview'))));
    return;
  }
  const title = view.title ?? at.id;
  document.title = `${view.alert?.() ?? ''}${title} · pushlease`;
  const head = h('div', { class: 'head' },
    h('div', null, view.above && h('p', { class: 'above' }, h('a', { href: view.above[0] }, view.above[1]), ' /'), h('h1', null, view.code ? h('span', { class: 'id' }, title) : title)),
    h('div', { class: 'tools' }, view.tools?.(), view.api && button('Copy as curl', copyCurl, { class: 'quiet', title: 'The API request that this page shows the answer of' })));
  main.classList.toggle('stale', !!view.stale);
  const form = view.form?.();
  if (view.error && view.data === undefined) draw(main, head, form, problem(view.error));
  else if (view.data === undefined) draw(main, head, form, h('p', { class: 'dim', 'aria-busy': 'true' }, fault ? 'Nothing is known yet.' : 'Loading…'));
  else draw(main, head, view.error && problem(view.error), form, view.draw(view.data));
}

// problem says what went wrong: with the request, or else with the page itself.
function problem(e) {
  const title = e instanceof Fault ? (e.status === 403 ? 'You may not see this' : e.problem.title ?? 'That did not work') : 'The page itself has a fault';
  return h('div', { class: 'problem', role: 'alert' }, h('h2', null, title), h('p', null, e.message), e.cures?.map((c) => h('p', { class: 'dim' }, c)));
}

// drawNotice says when what is shown is not how it is now.
function drawNotice() {
  draw(notice, fault && h('div', { class: 'notice bad' }, h('strong', null, fault.status ? 'Storage or server is away. ' : 'The server does not answer. '), fault.status ? `${fault.message} ` : 'It may be stopped, or the line to it is cut. ',
    last ? ['What is below is from ', clock(new Date(last).toISOString()), '. '] : null, 'It is asked again by itself.'),
  !fault && clockOff() !== 0 && h('div', { class: 'notice warn' }, `This browser's clock is ${span(clockOff() / 1000)} ${clockOff() > 0 ? 'ahead of' : 'behind'} the server's. Ages and waits below are told by the server's.`));
}

async function copyCurl() {
  const text = curl('GET', view.api);
  try {
    await navigator.clipboard.writeText(text);
    toast('The request is copied.');
  } catch {
    await confirm({ title: 'The API request', body: [h('pre', { tabindex: '0' }, text)], ok: 'Close', only: true });
  }
}

function drawFrame() {
  draw(nav, me && pages.filter((p) => !p.needs || context.can(p.needs)).map((p) => h('a', { key: p.path, href: `#/${p.path}`, 'aria-current': at?.page === p ? 'page' : null, 'aria-keyshortcuts': `g ${p.key}` }, p.name)));
  $('search').hidden = !me;
  draw(who, me && [
    view?.live && (stream?.live ? badge('ok', 'live', 'What happens at the instance that answers is shown as it happens; what others do, within seconds.') : badge('off', 'every 5 s', 'The stream of events is not there: what is shown is asked for every few seconds.')),
    me.keys_set ? h('span', { class: 'key', title: `It may: ${me.scopes.join(', ')}.${me.expires_at ? ` Signed in until ${exact(Date.parse(me.expires_at))}` : ' What stands before this server signs in with it.'}` }, me.key) : h('span', { class: 'key', title: 'No API keys are set: whoever is on this machine may do all.' }, 'this machine'),
    me.expires_at && button('Sign out', async () => { await signOut(); begin(); }, { class: 'quiet' }),
    button('?', help, { class: 'quiet round', title: 'Keys', 'aria-label': 'Which keys do what' }),
  ]);
}

// begin finds out who is asking, and lets them sign in where they have to.
async function begin() {
  clearTimeout(timer);
  began = Date.now();
  try {
    const answer = await whoAmI();
    me = answer.keys_set && !answer.signed_in ? null : answer;
  } catch (e) {
    if (!(e instanceof Fault)) throw e;
    me = null;
    drawFrame();
    draw(main, e.away ? h('div', { class: 'sign' }, h('h1', null, 'The server does not answer'), h('p', null, 'It is asked again every few seconds.')) : problem(e));
    timer = setTimeout(begin, e.away ? every / 2 : every);
    return;
  }
  drawFrame();
  if (!me) { drawSignIn(); return; }
  if (context.can('read')) know();
  at = null;
  arrive();
}

function drawSignIn(why) {
  view = null;
  listen();
  document.title = 'Sign in · pushlease';
  draw(notice);
  const submit = async (e) => {
    e.preventDefault();
    const input = e.target.elements.key, key = input.value.trim();
    input.value = '';
    try {
      await signIn(key);
      draw(main);
      await begin();
    } catch (f) {
      if (!(f instanceof Fault)) throw f;
      drawSignIn(f.message);
      main.querySelector('input').focus();
    }
  };
  draw(main, h('form', { class: 'sign', on: { submit } }, h('h1', null, 'Sign in'),
    h('p', null, 'This server has API keys. Show one of them; what it may do, this page may do.'),
    h('label', { for: 'key' }, 'API key'),
    h('input', { id: 'key', name: 'key', type: 'password', autocomplete: 'off', required: true, spellcheck: 'false', 'aria-describedby': 'key-note' }),
    why && h('p', { class: 'wrong', role: 'alert' }, why),
    h('p', { id: 'key-note', class: 'dim' }, 'The browser keeps it sealed, in a cookie that scripts can\'t read, and this page keeps what opens that, for 12 hours or until you sign out. A copy of both is the key. Make a key with ', h('code', null, 'pushlease api-key new'), '.'),
    h('button', { type: 'submit', class: 'main' }, 'Sign in')));
  if (document.activeElement === document.body) main.querySelector('input').focus();
}

// search goes to the queue or webhook of that name, or else to the message of that id.
$('search').addEventListener('submit', async (e) => {
  e.preventDefault();
  const text = find.value.trim();
  if (!text) return;
  find.value = '';
  find.blur();
  const there = (path) => get(path).then(() => true, () => false);
  const [hook, queue, id] = await Promise.all([there(`/webhooks/${part(text)}`), there(`/queues/${part(text)}`), context.idOf(text)]);
  const named = hook ? text : id;
  if (hook || named !== text) context.go(context.href('webhooks', named));
  else if (queue) context.go(context.href('queues', text));
  else context.go(context.href('messages', text));
});

// The keyboard. What is typed into a field is the field's.
let prefix = 0;
document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.isComposing) return;
  const typing = e.target.closest('input:not([type=checkbox]), textarea, select');
  if (e.key === 'Escape') {
    if (typing) typing.blur();
    else if (!dialogOpen() && view?.above) context.go(view.above[0]);
    return;
  }
  if (typing || dialogOpen() || !me || keysOff.get()) return;
  if (prefix && Date.now() - prefix < 1500) {
    prefix = 0;
    const page = pages.find((p) => p.key === e.key);
    if (page) { e.preventDefault(); context.go(`#/${page.path}`); return; }
  }
  const press = { g: () => { prefix = Date.now(); }, '/': () => find.focus(), '?': help, x: choose, j: () => step(1), k: () => step(-1) }[e.key];
  const hot = main.querySelector(`[data-key="${CSS.escape(e.key)}"]:not([disabled])`);
  if (press) { e.preventDefault(); press(); } else if (hot) {
    e.preventDefault();
    if (!e.repeat) hot.click(); // a key that is held is one press
  }
});

// step moves from row to row.
function step(by) {
  const rows = [...main.querySelectorAll('tbody th a, .trouble h2 a, .timeline summary')];
  const now = rows.indexOf(document.activeElement);
  rows[Math.min(rows.length - 1, Math.max(0, now < 0 ? 0 : now + by))]?.focus();
}

// choose ticks the row that has the focus, where rows can be chosen.
function choose() {
  document.activeElement?.closest('tr')?.querySelector('input[type=checkbox]')?.click();
}

addEventListener('hashchange', () => me && arrive());
document.addEventListener('visibilitychange', () => { if (document.visibilityState === 'visible') awake(); else listen(); });
addEventListener('online', awake);
setInterval(tick, 1000);
begin();

