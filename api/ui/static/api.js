// The REST API, asked as any client asks it. The browser keeps no key: after signing in a cookie that
// no script can read stands for it. It counts only beside the page's half of the session, in the header
// Pushlease-Page: every port of a host gets the cookie, and this origin alone its half.

const base = new URL('../', location.href.split('#')[0]);

const half = {
  name: `pushlease ${base.pathname}`, here: '',
  get() {
    try { return localStorage.getItem(this.name) || this.here || '1'; } catch { return this.here || '1'; } // a browser may refuse to keep anything
  },
  set(value) {
    this.here = value;
    try { if (value) localStorage.setItem(this.name, value); else localStorage.removeItem(this.name); } catch { /* it is kept until the page is closed */ }
  },
};

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

export async function ask(method, path, { query, body, type, headers } = {}) {
  const url = new URL(`api/v1${path}`, base);
  for (const [name, value] of Object.entries(query ?? {})) if (value) url.searchParams.set(name, value);
  let answer, text;
  try {
    answer = await fetch(url, {
      method, cache: 'no-store', credentials: 'same-origin', redirect: 'error', signal: AbortSignal.timeout(method === 'GET' ? 20000 : 130000),
      headers: { 'Pushlease-Page': half.get(), ...(body === undefined ? {} : { 'Content-Type': type ?? 'application/json' }), ...headers },
      body: body === undefined ? undefined : type ? body : JSON.stringify(body),
    });
    text = await answer.text(); // the line may be cut in the middle of it
  } catch {
    throw new Fault(0);
  }
  let read = null;
  try { read = text ? JSON.parse(text) : null; } catch { /* a proxy answered */ }
  if (!answer.ok) throw new Fault(answer.status, read);
  if (read !== null && typeof read === 'object') {
    Object.defineProperty(read, 'etag', { value: answer.headers.get('ETag') });
    Object.defineProperty(read, 'answeredAt', { value: answer.headers.get('Date') }); // by the server's clock
  }
  return read;
}

export const get = (path, query) => ask('GET', path, { query });

// all reads a whole list, up to 5,000 rows.
export async function all(path, query) {
  const rows = [];
  let cursor = null, first = null;
  do {
    const page = await get(path, { ...query, limit: 500, cursor });
    first ??= page;
    rows.push(...page.data);
    cursor = page.next_cursor;
  } while (cursor && rows.length < 5000);
  return Object.assign(rows, { more: !!cursor, unreadable: first.unreadable ?? [] });
}

// ready are the checks of /readyz, which answers 503 with them when it should.
export async function ready() {
  try {
    const answer = await fetch(new URL('readyz', base), { cache: 'no-store', headers: { 'Pushlease-Page': half.get() }, signal: AbortSignal.timeout(10000) });
    const read = await answer.json();
    return { checks: read.checks ?? [], storage: read.storage, ready: answer.ok };
  } catch {
    throw new Fault(0);
  }
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
  const made = await ask('POST', '/session', { headers: { Authorization: `Bearer ${key}` } });
  half.set(made.page_token);
}

export async function signOut() {
  await ask('DELETE', '/session');
  half.set('');
}

export const part = (s) => encodeURIComponent(s);
