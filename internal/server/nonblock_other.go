//go:build !unix

package server

func setNonblock(uintptr) {}
