// What was seen since the page was opened. The server keeps no history of these numbers yet, and
// nothing is made up for the time before.

const most = 360; // half an hour of looks every five seconds
const series = new Map();
const opened = Date.now();

export const seen = {
  opened,
  // note adds a number to a series, and returns the numbers that were seen.
  note(name, number) {
    let s = series.get(name);
    if (!s) series.set(name, s = { numbers: [], at: 0 });
    if (Date.now() - s.at > 1000) {
      s.numbers.push(number);
      s.at = Date.now();
      if (s.numbers.length > most) s.numbers.shift();
    }
    return s.numbers;
  },
  get: (name) => series.get(name)?.numbers ?? [],
};
