//go:build !unix

package admin

func setNonblock(uintptr) {}
