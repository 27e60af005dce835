//go:build !race

package frame_test

const underRace = false
