//go:build !linux

package conn

import (
	"net"

	"millrace/websocket/frame"
)

// loop is the Linux way to serve many connections at once; elsewhere every
// connection has a goroutine.
type loop struct{ runner }

func startLoops(*Engine, int) []*loop { return nil }

func detach(net.Conn) (fd int, ok bool) { return 0, false }

func shut(int) {}

func (lp *loop) base() *runner                                      { return &lp.runner }
func (*loop) run()                                                  {}
func (*loop) end()                                                  {}
func (*loop) turnWheel()                                            {}
func (*loop) each(*Settings, func(*Conn), int)                      {}
func (*loop) adopt(int, []byte, *Settings, frame.Params, any)       {}
func (*loop) write(*Conn, frame.Header, []byte)                     {}
func (*loop) writeRaw(*Conn, []byte)                                {}
func (*loop) deliver(*Conn, []byte, bool)                           {}
func (*loop) inflateLater(*Conn)                                    {}
func (*loop) readOn(*Conn)                                          {}
func (*loop) discardInput(*Conn)                                    {}
func (*loop) inTurn(*Conn, func(*Conn))                             {}
func (*loop) adoptPipe(_ [2]int, _ [2][]byte, _ *Settings, _ *pipe) {}
