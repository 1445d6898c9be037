// What happens, as it happens: the stream of the instance that answers. Each view says what it wants of it; the looks every few seconds go on,
// more seldom, since the stream has nothing of other instances, and as usual while there is none.
import { Fault, events } from './api.js';

const silence = 40000; // the server says something every 15 seconds: what is silent for longer is cut, and nobody was told
const first = 1000, longest = 30000; // pauses before it is tried again

// follow follows the stream until it is stopped, over cuts and restarts of the server. told is called with what came; turned when it is live from
// now on, or not any more.
export function follow(query, told, turned) {
  let last = '', heard = 0, live = false, stopped = false, cut = null, pause = first, timer = 0;
  const turn = (is) => { if (live !== is) { live = is; turned(is); } };

  async function run() {
    const mine = cut = new AbortController();
    heard = Date.now();
    try {
      for await (const e of events(query, last, mine.signal)) {
        if (mine !== cut) return;
        heard = Date.now();
        if (e.event) pause = first;
        if (e.id) last = e.id;
        if (e.event === 'hello') turn(true); else if (e.event) told(e.event, e.data);
      }
    } catch (e) {
      if (!(e instanceof Fault)) throw e;
      if (e.status === 501) stopped = true; // a Functions host has none
    }
    if (stopped || mine !== cut) return;
    turn(false);
    timer = setTimeout(run, pause);
    pause = Math.min(2 * pause, longest);
  }

  const watch = setInterval(() => { if (live && Date.now() - heard > silence) cut.abort(); }, 5000);
  run();
  return {
    get live() { return live; },
    // anew begins at once where the last event was, as after a sleep.
    anew() { if (stopped) return; clearTimeout(timer); cut.abort(); pause = first; run(); },
    stop() { stopped = true; clearInterval(watch); clearTimeout(timer); cut.abort(); turn(false); },
  };
}
