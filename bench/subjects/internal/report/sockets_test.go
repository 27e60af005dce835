package report

import (
	"strings"
	"testing"
	"time"

	"millrace/bench/subjects/internal/proc"
	"millrace/bench/subjects/internal/record"
)

// socketSample is a run of two rounds in which gws costs 10 µs, in the second
// round twice as much, and millrace so many times of that; its connections cost
// 400 bytes.
func socketSample(ours float64) *record.Run {
	r := &record.Run{
		Scenario: "ws", Seed: 42, Rounds: 2, Slot: time.Second,
		Machine: proc.Machine{CPU: "Some CPU", Cores: 2, Kernel: "Linux 6", Memory: 4e9},
		Arms:    []record.Arm{{Name: "millrace", Title: "millrace", Ours: true}, {Name: "gws", Title: "gws"}, {Name: "nginx", Title: "nginx"}},
		Sockets: &record.Sockets{
			Parts: []string{"echo", "broadcast", "idle", "ramp"}, Rest: 20 * time.Second, CastRounds: 2, Data: 100,
			Commands: []record.SocketCommand{{Arm: "gws", Mode: "echo", Command: "bench/out/bin/wsgws -listen 127.0.0.1:PORT"}},
		},
	}
	s := r.Sockets
	for round := 1; round <= 2; round++ {
		for name, times := range map[string]float64{"millrace": ours, "gws": 1} {
			cost := time.Duration(times * float64(round) * 10_000)
			use := record.SocketUse{Server: proc.CPU{Total: 1000 * cost}, Client: proc.CPU{Total: 1000 * 6000}, Wall: time.Second}
			for _, n := range []int{1000, 50} {
				s.Echoes = append(s.Echoes, record.SocketEcho{
					Round: round, Arm: name, Connections: n, Size: 20, Messages: 1000, Took: time.Second,
					P50: time.Millisecond, P99: 2 * time.Millisecond, SocketUse: use,
				})
			}
			s.Casts = append(s.Casts, record.SocketCast{
				Round: round, Arm: name, Subscribers: 10_000, Every: 200 * time.Millisecond, Published: 1, Delivered: 1000, Took: time.Second,
				P50: 10 * time.Millisecond, P99: cost * 1000, Max: 30 * time.Millisecond, SocketUse: use,
			})
		}
	}
	for mode, each := range map[string]uint64{"echo": 300, "channels": 400, "echo over TLS": 15_000, "proxy": 900} {
		s.Idle = append(s.Idle,
			record.SocketIdle{Arm: "millrace", Mode: mode, Connections: 1000, Open: 1000, Fresh: proc.Memory{RSS: 20e6}, Before: proc.Memory{RSS: 30e6}, After: proc.Memory{RSS: 30e6 + 1000*each}},
			record.SocketIdle{Arm: "gws", Mode: mode, Connections: 1000, Open: 1000, Before: proc.Memory{RSS: 10e6}, After: proc.Memory{RSS: 10e6 + 1000*10_000}})
	}
	for _, name := range []string{"millrace", "gws"} {
		s.Ramps = append(s.Ramps, record.SocketRamp{
			Arm: name, Servers: 6, Connections: 100_000, Echoed: 100_000, Opened: 20 * time.Second, Echoing: time.Second,
			Before: proc.Memory{RSS: 100e6}, Held: proc.Memory{RSS: 200e6}, Server: proc.CPU{Total: 10 * time.Second},
		})
	}
	return r
}

func TestSockets(t *testing.T) {
	text := Sockets(socketSample(0.7))
	for _, want := range []string{
		"# Results of `bench/run ws`",
		"| CPU per echo of gws's, 20 bytes, 1,000 connections | ≤ 0.80 | 0.70 (0.70–0.70) | pass |",
		"| CPU per delivery of gws's, 1 → 10,000, 5 a second | ≤ 0.80 | 0.70 (0.70–0.70) | pass |",
		"| 99th percentile of the lag of gws's, 1 → 10,000, 5 a second | ≤ 1.00 | 0.70 (0.70–0.70) | pass |",
		"| Failed echoes of millrace | ≤ 0 | 0 | pass |",
		"| Deliveries of millrace that were lost, doubled or refused | ≤ 0 | 0 | pass |",
		"| Memory of a quiet connection with a subscription | ≤ 512 B | 400 B | pass |",
		"| Memory of a quiet connection over TLS | ≤ 14,000 B | 15,000 B | **fail** |",
		"| Memory of a quiet connection that is passed on | ≤ 1,000 B | 900 B | pass |",
		"| Failed of 100,000 connections to 6 processes | ≤ 0 | 0 | pass |",
		"### 20 bytes, 50 connections",
		"| millrace | 10.50 µs (7.00 µs–14.00 µs) | 0.70 (0.70–0.70) |",
		"| one subscription each | millrace | 1,000 | 1,000 | 20.0 MB | 30.0 MB | 30.4 MB | 400 B | 10,400 B |",
		"with 50.0 % confidence",
		"| idle, echo over TLS | memory of each | gws | 15,000 B | 10,000 B | 1.50 | measured once |",
		"bench/run ws --seed 42 --arms millrace,gws,nginx",
		"bench/out/bin/wsgws -listen 127.0.0.1:PORT",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
	if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") || strings.Contains(text, "20 bytes, 50 connections | ≤") {
		t.Errorf("a figure is none, or a bar too much:\n%s", text)
	}
}

// TestSocketsTellsLosses: what is worse is listed, and its bars are not met.
func TestSocketsTellsLosses(t *testing.T) {
	r := socketSample(1.5)
	r.Sockets.Echoes[0].Failed = 3
	r.Sockets.Ramps[0].Failed = 7
	r.Sockets.Notes = []string{"echo: only 2 rounds, the time for more was over"}
	r.Sockets.Parts = []string{"echo"}
	text := Sockets(r)
	for _, want := range []string{
		"| 20 bytes, 1,000 connections | CPU of the server | gws | 22.50 µs | 15.00 µs | 1.50 (1.50–1.50) | in each round |",
		"| 1 → 10,000, 5 a second | 99th percentile | gws |",
		"≤ 0.80 | 1.50 (1.50–1.50) | **fail** |",
		"| Failed of 100,000 connections to 6 processes | ≤ 0 | 7 | **fail** |",
		"**echo: only 2 rounds, the time for more was over.**",
		"bench/run ws echo --seed 42",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	missed, measured := Missed(r, nil)
	if measured == 0 || missed < 4 {
		t.Errorf("%d of %d bars are missed", missed, measured)
	}
}

// TestSocketsInParts: what was not asked for is not measured, and no table of
// it is there.
func TestSocketsInParts(t *testing.T) {
	r := socketSample(0.7)
	r.Sockets.Echoes, r.Sockets.Casts, r.Sockets.Ramps = nil, nil, nil
	text := Sockets(r)
	if strings.Contains(text, "## Echo") || strings.Contains(text, "## Broadcast") || strings.Contains(text, "## As many") || !strings.Contains(text, "## Quiet") {
		t.Error(text)
	}
	if missed, measured := Missed(r, nil); measured != 4 || missed != 1 {
		t.Errorf("%d of %d bars are missed", missed, measured)
	}
	r.Arms = r.Arms[1:]
	r.Sockets.Idle = nil
	if text := Sockets(r); !strings.Contains(text, "Not known: millrace or its peers were not measured.") {
		t.Error(text)
	}
}
