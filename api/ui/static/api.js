// The REST API, asked as any client asks it. The browser keeps the key sealed, in a cookie that
// no script can read. It opens only with the page's half of the session, which is in this page's storage and goes with
// each request in the header Pushlease-Page: every port of a host gets the cookie, and this origin alone its half.

const base = new URL('../', location.href.split('#')[0]);

// kept is a text that the browser keeps for this page, or where it refuses to, until the page is closed.
const kept = (name) => ({
  here: '',
  get() {
    try { return localStorage.getItem(name) || this.here; } catch { return this.here; }
  },
  set(value) {
    this.here = value;
    try { if (value) localStorage.setItem(name, value); else localStorage.removeItem(name); } catch { /* it is here */ }
  },
});

const half = kept(`pushlease ${base.pathname}`);
const page = () => half.get() || '1';

// keysOff says that letters alone do nothing: who dictates to the machine may want that.
export const keysOff = kept(`pushlease keys ${base.pathname}`);

// now is the server's time: the browser's clock may be wrong. An answer says within which second the server made it,
// and it was made between the request and its arrival; what is known to be too early or too late is mended.
let ahead = 0;
export const now = () => Date.now() + ahead;
export const clockOff = () => (Math.abs(ahead) > 60000 ? -ahead : 0);

function setClock(date, sent) {
  const at = Date.parse(date);
  if (!Number.isNaN(at)) ahead = Math.min(Math.max(ahead, at - Date.now()), at + 1000 - sent);
}

export class Fault extends Error {
  constructor(status, problem) {
    super(problem?.detail || (status ? `The server answered ${status}.` : 'The server does not answer.'));
    this.status = status;
    this.problem = problem ?? {};
    // away: nobody answered, or storage did not; what was shown before is the last that is known.
    this.away = status === 0 || status === 502 || status === 503 || status === 504;
  }

  // cures are what the API says can be done.
  get cures() {
    return (this.problem.errors ?? []).map((e) => `${e.field} ${e.problem}: ${e.cure}.`);
  }
}

// timeouts are how long the page waits for an answer, in milliseconds, where nothing else is asked for.
const timeouts = (method) => (method === 'GET' ? 20000 : 130000);

export async function ask(method, path, { query, body, type, headers, timeout } = {}) {
  const url = new URL(`api/v1${path}`, base);
  for (const [name, value] of Object.entries(query ?? {})) if (value) url.searchParams.set(name, value);
  const sent = Date.now();
  let answer, text;
  try {
    answer = await fetch(url, {
      method, cache: 'no-store', credentials: 'same-origin', redirect: 'manual', signal: AbortSignal.timeout(timeout ?? timeouts(method)),
      headers: { 'Pushlease-Page': page(), ...(body === undefined ? {} : { 'Content-Type': type ?? 'application/json' }), ...headers },
      body: body === undefined ? undefined : type ? body : JSON.stringify(body),
    });
    text = await answer.text(); // the line may be cut in the middle of it
  } catch {
    throw new Fault(0);
  }
  if (answer.type === 'opaqueredirect') throw new Fault(302, elsewhere);
  setClock(answer.headers.get('Date'), sent);
  let read = null;
  try { read = text ? JSON.parse(text) : null; } catch { /* a proxy answered */ }
  if (!answer.ok) throw new Fault(answer.status, read);
  if (read !== null && typeof read === 'object') {
    Object.defineProperty(read, 'etag', { value: answer.headers.get('ETag') });
  }
  return read;
}

// elsewhere is what to do where a sign-in that stands before this server has ended: it sends the page away.
const elsewhere = { title: 'What stands before this server sends you elsewhere', detail: 'Reload this page: it may want you to sign in again.' };

export const get = (path, query) => ask('GET', path, { query });

// some reads the first rows of a list: each request makes the server read a whole list of webhooks or queues.
// A page of a list that looks through much may be empty: `pages` bounds how many are read then.
export async function some(path, query, most = 500, pages = Infinity) {
  const rows = [];
  let cursor = null, first = null, read = 0;
  do {
    const page = await get(path, { ...query, limit: Math.min(500, most - rows.length), cursor });
    first ??= page;
    rows.push(...page.data);
    cursor = page.next_cursor;
  } while (cursor && rows.length < most && ++read < pages);
  return Object.assign(rows, { more: !!cursor, unreadable: first.unreadable ?? [] });
}

// counters are those of the metrics whose lines match, each {name, labels, value}.
export async function counters(begin) {
  let text;
  try {
    const answer = await fetch(new URL('metrics', base), { cache: 'no-store', credentials: 'same-origin', headers: { 'Pushlease-Page': page() }, signal: AbortSignal.timeout(10000) });
    if (!answer.ok) throw new Fault(answer.status);
    text = await answer.text();
  } catch (e) { throw e instanceof Fault ? e : new Fault(0); }
  return text.split('\n').filter((l) => begin.test(l)).map((l) => {
    const [, name, labels, value] = /^([a-z_]+)(?:\{(.*)\})? (\S+)/.exec(l);
    return { name, labels: Object.fromEntries([...(labels ?? '').matchAll(/([a-z_]+)="((?:[^"\\]|\\.)*)"/g)].map(([, k, v]) => [k, v])), value: Number(value) };
  });
}

// ready are the checks of /readyz, which answers 503 with them when it should.
export async function ready() {
  try {
    const answer = await fetch(new URL('readyz', base), { cache: 'no-store', headers: { 'Pushlease-Page': page() }, signal: AbortSignal.timeout(10000) });
    const read = await answer.json();
    return { checks: read.checks ?? [], storage: read.storage, ready: answer.ok };
  } catch {
    throw new Fault(0);
  }
}

// events are those of the stream, as they come, each {id, event, data}; a comment has no event. It is no EventSource, which can send no header.
export async function* events(query, last, signal) {
  const url = new URL('api/v1/stream', base);
  for (const [name, value] of Object.entries(query)) if (value) url.searchParams.set(name, value);
  let answer;
  try {
    answer = await fetch(url, { cache: 'no-store', credentials: 'same-origin', redirect: 'manual', signal, headers: { 'Pushlease-Page': page(), ...(last ? { 'Last-Event-ID': last } : {}) } });
  } catch { throw new Fault(0); }
  if (!answer.ok || !answer.headers.get('Content-Type')?.startsWith('text/event-stream')) {
    answer.body?.cancel().catch(() => {});
    throw new Fault(answer.status);
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    let part;
    try { part = await reader.read(); } catch { throw new Fault(0); }
    if (part.done) return;
    const whole = (text + part.value).split('\n\n');
    text = whole.pop();
    for (const one of whole) yield event(one);
  }
}

function event(text) {
  const e = {};
  for (const line of text.split('\n')) {
    const [, name, value] = /^([a-z]+): ?(.*)$/.exec(line) ?? [];
    if (name) e[name] = value;
  }
  return { ...e, data: e.data && JSON.parse(e.data) };
}

// curl is the command that asks the same.
export function curl(method, path, body) {
  const key = keyed ? ' -H "Authorization: Bearer $PUSHLEASE_API_KEY"' : '';
  const quote = (s) => `'${s.replaceAll("'", "'\\''")}'`;
  const data = body === undefined ? '' : ` -H 'Content-Type: application/json' -d ${quote(typeof body === 'string' ? body : JSON.stringify(body))}`;
  return `curl -s${method === 'GET' ? '' : ` -X ${method}`} ${quote(new URL(`api/v1${path}`, base).href)}${key}${data}`;
}

let keyed = false;

export async function whoAmI() {
  const who = await get('/session');
  keyed = who.keys_set;
  return who;
}

export async function signIn(key) {
  if (!/^[\x21-\x7e]+$/.test(key)) throw new Fault(400, { detail: 'A key has only letters, digits and signs of ASCII, and no blank within it. Something else was typed or pasted.' });
  const made = await ask('POST', '/session', { headers: { Authorization: `Bearer ${key}` } });
  half.set(made.page_token);
}

// signOut needs no server: without the half nobody can open the cookie, if that stays.
export async function signOut() {
  half.set('');
  await ask('DELETE', '/session', { timeout: 5000 }).catch((e) => { if (!(e instanceof Fault)) throw e; });
}

export const part = (s) => encodeURIComponent(s);
