//go:build !race

package purge

const underRace = false
