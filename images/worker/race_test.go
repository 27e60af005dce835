//go:build race

package worker

const underRace = true
