// Questions, and what the keys do.
import { button, h } from './dom.js';

export const open = () => !!document.querySelector('dialog[open]');

// confirm asks, and says whether the answer was yes. The button that changes something is never
// the one that has the focus when it asks.
export function confirm({ title, body, ok, danger, only }) {
  return new Promise((answered) => {
    const close = (yes) => { dialog.close(); answered(yes); };
    const dialog = h('dialog', { 'aria-labelledby': 'asked', on: { cancel: () => answered(false), close: () => dialog.remove() } },
      h('h2', { id: 'asked' }, title), body,
      h('div', { class: 'buttons' },
        !only && button('Cancel', () => close(false), { class: 'quiet', autofocus: true }),
        button(ok, () => close(true), { class: danger ? 'danger' : 'main', autofocus: only })));
    document.body.append(dialog);
    dialog.showModal();
  });
}

const keys = [
  ['/', 'find a message, queue or webhook'], ['g o', 'overview'], ['g q', 'queues'], ['g w', 'webhooks'], ['g m', 'messages'], ['g d', 'dead letters'], ['g b', 'jobs'],
  ['j  k', 'next and previous row'], ['Enter', 'open the row'], ['r', 'replay, where the page offers it'], ['e', 'enable or disable, on a webhook'], ['t', 'send a test, on a webhook'],
  ['Esc', 'close, leave a field, or go up'], ['?', 'this list'],
];

export function help() {
  return confirm({ title: 'Keys', only: true, ok: 'Close', body: [h('dl', { class: 'keys' }, keys.map(([k, what]) => h('div', null, h('dt', null, k.split(' ').filter(Boolean).map((one) => h('kbd', null, one))), h('dd', null, what))))] });
}
