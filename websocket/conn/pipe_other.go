//go:build !linux

package conn

import "millrace/websocket/frame"

func closeFD(int) {}

func (c *Conn) leavePipe(frame.Code, string) {}
