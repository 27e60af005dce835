package images

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/record"
)

const (
	idleQuick = 2_000
	idleFull  = 8_000 // one address has at most half of 16,384 connections

	// The rounds are how often each arm is started for it: the heap of a Go
	// program depends on when it was collected last, by several percent.
	idleRoundsQuick = 2
	idleRoundsFull  = 5

	// idleSettle is how long the connections rest before the memory is read:
	// long enough for goroutines to park and the collector to come round.
	idleSettle = 700 * time.Millisecond
	// idleTimeout is how long one connection may take to be answered.
	idleTimeout = 5 * time.Second
)

// idleMemory is the resident memory of each arm with idle connections.
type idleMemory struct {
	connections int
	rss         [2][]float64 // bytes; without a profile, with one
}

// growth is how much more the build with the profile needs, as a share.
func (m idleMemory) growth() (share float64, known bool) {
	if len(m.rss[0]) == 0 || len(m.rss[1]) == 0 {
		return 0, false
	}
	return experiment.Median(m.rss[1])/experiment.Median(m.rss[0]) - 1, true
}

// apart reports whether every reading with the profile is above every one
// without: less could come from when the collector ran.
func (m idleMemory) apart() bool {
	return len(m.rss[0]) > 0 && len(m.rss[1]) > 0 && slices.Min(m.rss[1]) > slices.Max(m.rss[0])
}

// sentence is the growth in words.
func (m idleMemory) sentence() string {
	growth, _ := m.growth()
	if growth > 0 && !m.apart() {
		return experiment.Change(1+growth) + " memory with idle connections, within what two runs of one build differ"
	}
	return experiment.Change(1+growth) + " memory with idle connections"
}

// idle opens many connections to each arm, asks once over each, lets them rest
// and reads the memory. What cannot be measured becomes a note.
func (p *proof) idle(ctx context.Context, res *record.Result) idleMemory {
	m := idleMemory{connections: idleQuick}
	rounds := idleRoundsQuick
	if p.env.Mode == record.Full {
		m.connections, rounds = idleFull, idleRoundsFull
	}
	for round := range rounds {
		for i := range p.arms {
			i = (i + round) % len(p.arms) // each arm is first in turn
			p.begin(fmt.Sprintf("opening %d idle connections, %s", m.connections, p.arms[i].name))
			rss, err := p.idleOnce(ctx, p.arms[i], m.connections)
			if err != nil {
				if ctx.Err() == nil {
					res.Notes = append(res.Notes, fmt.Sprintf("memory with %d idle connections is not known: %v", m.connections, err))
				}
				return idleMemory{connections: m.connections}
			}
			m.rss[i] = append(m.rss[i], float64(rss))
		}
	}
	return m
}

func (p *proof) idleOnce(ctx context.Context, a proofArm, n int) (rss uint64, err error) {
	s, err := p.serve(ctx, a.exe, p.exampleArgs())
	if err != nil {
		return 0, err
	}
	defer s.Stop() //nolint:errcheck // it was only looked at
	target, err := record.Open(s.PID)
	if err != nil {
		return 0, err
	}
	defer target.Close() //nolint:errcheck // it only read
	conns, err := openIdle(ctx, s.Address(), p.Paths[0], n)
	defer closeAll(conns)
	if err != nil {
		return 0, err
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(idleSettle):
	}
	now, err := target.Read()
	return now.RSS, err
}

// openIdle opens connections that have been answered once, so that the server
// has all that it keeps for one.
func openIdle(ctx context.Context, address, path string, n int) ([]net.Conn, error) {
	conns := make([]net.Conn, 0, n)
	dialer := net.Dialer{Timeout: idleTimeout}
	request := "GET " + path + " HTTP/1.1\r\nHost: " + address + "\r\n\r\n"
	for len(conns) < n {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return conns, fmt.Errorf("opening connection %d: %w", len(conns)+1, err)
		}
		conns = append(conns, conn)
		if err := askOnce(conn, request); err != nil {
			return conns, fmt.Errorf("asking over connection %d: %w", len(conns), err)
		}
	}
	return conns, nil
}

func askOnce(conn net.Conn, request string) error {
	if err := conn.SetDeadline(time.Now().Add(idleTimeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// closeAll ends the connections. The server is stopped right after.
func closeAll(conns []net.Conn) {
	for _, c := range conns {
		c.Close()
	}
}
