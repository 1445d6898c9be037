// Elements are made and changed here. What comes from outside becomes text and attributes, never
// markup: nothing in the page parses HTML.

const svgSpace = 'http://www.w3.org/2000/svg';

// h makes an element. Attributes that are null or false are left out; `on` holds its listeners,
// `key` says which element it is among its siblings when the page is drawn again.
export function h(tag, attrs, ...children) {
  return build(document.createElement(tag), attrs, children);
}

export function svg(tag, attrs, ...children) {
  return build(document.createElementNS(svgSpace, tag), attrs, children);
}

function build(node, attrs, children) {
  for (const [name, value] of Object.entries(attrs ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'on') listen(node, value);
    else if (name === 'key') node.key = value;
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  node.append(...flat(children));
  return node;
}

function flat(children) {
  return children.flat(9).filter((c) => c !== null && c !== undefined && c !== false && c !== '')
    .map((c) => (c instanceof Node ? c : document.createTextNode(String(c))));
}

// listen keeps a node's listeners where drawing again can exchange them.
function listen(node, handlers) {
  for (const type of Object.keys(handlers)) {
    if (!(type in (node.handlers ?? {}))) node.addEventListener(type, (e) => node.handlers[type]?.(e));
  }
  node.handlers = handlers;
}

// draw makes the children of a node what they should be, and leaves alone what is so already: the
// focus, a selection, an open <details> and what somebody is typing outlive it.
export function draw(node, ...children) {
  const wanted = flat(children), keys = new Set(wanted.map((w) => w.key)), keyed = new Map();
  for (const n of [...node.childNodes]) {
    if (n.key === undefined) continue;
    if (keys.has(n.key)) keyed.set(n.key, n); else n.remove();
  }
  let at = node.firstChild;
  for (const want of wanted) {
    const have = want.key === undefined ? at : keyed.get(want.key);
    if (!have || !same(have, want)) { node.insertBefore(want, at); continue; }
    keyed.delete(want.key);
    if (have === at) at = at.nextSibling; else move(have, node, at);
    become(have, want);
  }
  while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
}

// move puts a node before another one. The focus within it, which a browser takes from what is moved, stays.
function move(have, node, before) {
  const focused = have.contains(document.activeElement) && document.activeElement;
  node.insertBefore(have, before);
  if (focused) focused.focus({ preventScroll: true });
}

function same(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && a.key === b.key;
}

// kept are attributes that whoever uses the page changes.
const kept = { DETAILS: ['open'], INPUT: ['value', 'checked'], TEXTAREA: ['value'], DIALOG: ['open'] };

function become(have, want) {
  if (have.nodeType === Node.TEXT_NODE) {
    if (have.data !== want.data) have.data = want.data;
    return;
  }
  const mine = kept[have.nodeName] ?? [];
  for (const { name } of [...have.attributes]) if (!want.hasAttribute(name) && !mine.includes(name)) have.removeAttribute(name);
  for (const { name, value } of [...want.attributes]) if (!mine.includes(name) && have.getAttribute(name) !== value) have.setAttribute(name, value);
  if (want.handlers || have.handlers) listen(have, { ...want.handlers });
  if (have.nodeName !== 'TEXTAREA') draw(have, ...want.childNodes);
}

// glyphs stand beside words, so that no state is told by its colour alone.
const glyphs = { ok: '✓', info: '●', warn: '▲', bad: '✕', off: '○', wait: '◔' };

// badge is a state: its word, its glyph and its colour.
export function badge(kind, word, title) {
  return h('span', { class: `badge ${kind}`, title }, h('span', { class: 'glyph', 'aria-hidden': 'true' }, glyphs[kind]), word);
}

// table is a real one. A column is {head, cell(row), num, low, lower}: low ones give way on narrow
// screens, lower ones earlier.
export function table(caption, columns, rows, key) {
  const kind = (c) => [c.num && 'num', c.low && 'low', c.lower && 'lower', c.wide && 'wide'].filter(Boolean).join(' ') || null;
  const all = h('div', { class: 'scroll' }, h('table', null,
    h('caption', { class: 'unseen' }, caption),
    h('thead', null, h('tr', null, columns.map((c) => h('th', { scope: 'col', class: kind(c) }, c.head)))),
    h('tbody', null, rows.map((r) => h('tr', { key: key(r) }, columns.map((c, i) => h(i === 0 ? 'th' : 'td', { class: kind(c), scope: i === 0 ? 'row' : null }, c.cell(r)))))),
  ));
  if (!all.querySelector('a, button, input')) build(all, { tabindex: '0', role: 'group', 'aria-label': caption }, []); // the keyboard scrolls what has the focus
  return all;
}

// longTable is a table of the first rows of a list, with a field that finds others by a part of their name. The view keeps how many are read; the
// address what is looked for.
export function longTable(caption, columns, list, { key, view, find, onFind, look }) {
  return [
    (list.length > 20 || find) && h('form', { class: 'filters', on: { submit: (e) => { e.preventDefault(); onFind(e.currentTarget.elements.find.value.trim()); }, change: (e) => onFind(e.target.value.trim()) } },
      h('label', null, 'Name contains', h('input', { name: 'find', value: find ?? '', autocomplete: 'off', spellcheck: 'false' }))),
    list.length ? card(null, table(caption, columns, list, key), list.more && more(view, look))
      : card(null, h('p', { class: 'dim' }, 'No name has that in it.')),
  ];
}

// more has 200 more rows read.
export const more = (view, look) => h('p', { class: 'more' }, button('Show more', () => { view.rows += 200; look(); }));

// facts is a list of names and values; those without a value are left out.
export function facts(...pairs) {
  return h('dl', { class: 'facts' }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== '' && value !== false)
    .map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, value))));
}

// foreign is a text from outside within a sentence: whatever it holds, it does not turn the words around it.
export const foreign = (text) => h('bdi', null, text);

export function card(title, ...children) {
  return h('section', { class: 'card' }, title && h('h2', null, title), children);
}

export function button(text, onClick, attrs) {
  return h('button', { type: 'button', ...attrs, on: { click: onClick } }, text);
}

// copyable is a command that one click copies.
export function copyable(text) {
  return h('div', { class: 'copyable' }, h('pre', { tabindex: '0' }, h('code', null, text)),
    button('Copy', async (e) => {
      const b = e.currentTarget;
      try {
        await navigator.clipboard.writeText(text);
        b.textContent = 'Copied';
      } catch { // the browser allows it on https and localhost only
        getSelection().selectAllChildren(b.previousSibling);
        b.textContent = 'Selected';
      }
      setTimeout(() => { b.textContent = 'Copy'; }, 1500);
    }, { class: 'quiet' }));
}

// empty says why nothing is shown, and which command changes that.
export function empty(text, command) {
  return h('div', { class: 'empty' }, h('p', null, text), command && copyable(command));
}

// plot is a line of numbers; null is where none is known.
export function plot(numbers, label) {
  if (!numbers || numbers.filter((n) => n !== null).length < 2) return null;
  const most = Math.max(1e-9, ...numbers), last = numbers.length - 1;
  const points = numbers.flatMap((n, i) => (n === null ? [] : [`${(100 * i / last).toFixed(1)},${(22 - 20 * n / most).toFixed(1)}`]));
  return svg('svg', { class: 'plot', viewBox: '0 0 100 24', preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
    svg('title', null, label),
    svg('polygon', { points: `${points[0].split(',')[0]},24 ${points.join(' ')} ${points.at(-1).split(',')[0]},24` }),
    svg('polyline', { points: points.join(' ') }));
}

// share is a bar from 0 to 1.
export function share(part) {
  return svg('svg', { class: 'share', viewBox: '0 0 100 6', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    svg('rect', { class: 'all', width: 100, height: 6 }), svg('rect', { width: Math.max(1, 100 * part).toFixed(1), height: 6 }));
}
