// Package meter counts. It takes names and numbers, and knows nothing of messages.
package meter
