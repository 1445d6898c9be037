//go:build !race

package dispatcher

const raceDetector = false
