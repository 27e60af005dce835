//go:build race

package conn

const underRace = true
