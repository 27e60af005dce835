//go:build race

package container

const underRace = true
