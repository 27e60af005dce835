//go:build !race

package websocket_test

const underRace = false
