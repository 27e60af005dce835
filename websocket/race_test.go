//go:build race

package websocket_test

const underRace = true // the race detector makes everything ten times slower
