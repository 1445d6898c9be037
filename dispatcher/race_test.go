//go:build race

package dispatcher

// raceDetector makes tests of sheer numbers smaller: its runtime gave way under them.
const raceDetector = true
