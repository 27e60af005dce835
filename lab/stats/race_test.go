//go:build race

package stats

const underRace = true
