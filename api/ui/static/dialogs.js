// Questions, and what the keys do.
import { button, copyable, h } from './dom.js';
import { keysOff } from './api.js';

export const open = () => !!document.querySelector('dialog[open]');

// confirm asks, and says whether the answer was yes. The button that changes something is never
// the one that has the focus when it asks.
// One that holds stays until its button is pressed.
export function confirm({ title, body, ok, danger, only, holds }) {
  return new Promise((answered) => {
    const close = (yes) => { answered(yes); dialog.close('answered'); };
    // A second Escape closes a dialog whatever it says: one that holds is opened again.
    const closed = () => { if (holds && dialog.returnValue !== 'answered') dialog.showModal(); else dialog.remove(); };
    const dialog = h('dialog', { 'aria-labelledby': 'asked', on: { cancel: (e) => { if (holds) e.preventDefault(); else answered(false); }, close: closed } },
      h('h2', { id: 'asked' }, title), body,
      h('div', { class: 'buttons' },
        !only && button('Cancel', () => close(false), { class: 'quiet', autofocus: true }),
        button(ok, () => close(true), { class: danger ? 'danger' : 'main', autofocus: only })));
    document.body.append(dialog);
    dialog.showModal();
  });
}

const keys = [
  ['/', 'find a message, queue or webhook'], ['g o', 'overview'], ['g q', 'queues'], ['g w', 'webhooks'], ['g m', 'messages'], ['g d', 'dead letters'], ['g b', 'jobs'], ['g a', 'audit'], ['g s', 'settings'],
  ['j  k', 'next and previous row'], ['Enter', 'open the row'], ['r', 'replay, where the page offers it'], ['e', 'enable or disable, on a webhook'], ['t', 'send a test, on a webhook'],
  ['x', 'choose the row, on dead letters'], ['Esc', 'close, leave a field, or go up'], ['?', 'this list'],
];

export function help() {
  const off = h('input', { type: 'checkbox', checked: !!keysOff.get(), on: { change: () => keysOff.set(off.checked ? 'off' : '') } });
  return confirm({ title: 'Keys', only: true, ok: 'Close', body: [h('label', { class: 'tick' }, off, 'Letters and signs alone do nothing, as for dictating'), h('dl', { class: 'keys' }, keys.map(([k, what]) => h('div', null, h('dt', null, k.split(' ').filter(Boolean).map((one) => h('kbd', null, one))), h('dd', null, what))))] });
}

// showSecret shows a secret that no answer has again, until somebody says that it is kept.
export function showSecret(text) {
  return confirm({ title: 'The new secret', only: true, holds: true, ok: 'I have it', body: [h('p', null, 'It is shown this once. The receiver needs it to verify what it is sent.'), copyable(text)] });
}
