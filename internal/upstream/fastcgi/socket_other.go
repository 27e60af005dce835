//go:build !unix

package fastcgi

import "net"

func fdOf(net.Conn) int { return noFD }

func tryRead(int, []byte) (int, error) { return 0, errLater }

func unread(int) bool { return false }

func closeFD(int) {}
