//go:build !race

package conn

const underRace = false
