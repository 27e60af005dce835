// Package packed is what of the experiment packed is code: starts that are timed to
// the first byte, and every file in every encoding.
package packed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/record"
	"millrace/lab/site"
	"millrace/lab/trial"
)

const (
	packed = "millrace-packed"
	// checking is how long a packed site is left alone after its start: it compares
	// its contents with their sums in the background, which no request should pay for.
	checking = time.Second
	// answerTimeout is how long a start, or an answer, may take.
	answerTimeout = 10 * time.Second
	// pause is between two attempts to connect: short beside what is measured.
	pause = 200 * time.Microsecond
	// clients ask at once.
	clients = 8
)

// encodings are what the files are asked for with.
func encodings() []string { return []string{"identity", "gzip", "br"} }

// Hooks are those of the experiment.
func Hooks(r *experiment.Run) experiment.Hooks {
	return experiment.Hooks{
		Start: map[string]func(context.Context) (*trial.Instance, error){packed: func(ctx context.Context) (*trial.Instance, error) {
			in, err := r.Start(ctx, packed)
			if err == nil {
				if err = experiment.Sleep(ctx, checking); err != nil {
					_ = in.Stop() // the run ends
				}
			}
			return in, err
		}},
		Tasks: map[string]experiment.Task{
			"starts": func(ctx context.Context, slot trial.TaskSlot, w experiment.Workload) (trial.TaskResult, error) {
				return starts(ctx, r, slot.Arm, w.Count)
			},
			"ask-for-all": func(ctx context.Context, slot trial.TaskSlot, _ experiment.Workload) (got trial.TaskResult, err error) {
				err = r.Alone(ctx, slot.Arm, func(in *trial.Instance, target *record.Target) error {
					got, err = askForAll(ctx, in.URL[""], target)
					return err
				})
				return got, err
			},
		},
	}
}

// starts measures the time from a start to the first byte, some times.
func starts(ctx context.Context, r *experiment.Run, arm string, count int) (got trial.TaskResult, err error) {
	var times []float64
	for range count {
		took, err := start(ctx, r, arm)
		if err != nil {
			return got, err
		}
		times = append(times, float64(took))
	}
	return trial.TaskResult{Values: map[string]float64{"first_byte_ns": experiment.Median(times)}, Done: uint64(count)}, nil
}

// start starts a server, asks for the page until there is an answer, and ends the
// server. It does not wait for the server by package subject, which looks less often.
func start(ctx context.Context, r *experiment.Run, arm string) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	cmd, address, leave, err := r.Ready(ctx, arm, nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, leave()) }()
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting %s: %w", arm, err)
	}
	err = awaitByte(ctx, address)
	took = time.Since(began)
	cancel()       // kills it
	_ = cmd.Wait() // that it was killed is known
	return took, err
}

// awaitByte asks for the page until its first byte is there.
func awaitByte(ctx context.Context, address string) error {
	for {
		err := askOnce(ctx, address)
		if err == nil {
			return nil
		}
		if experiment.Sleep(ctx, pause) != nil {
			return fmt.Errorf("waiting for the first byte: %w", err)
		}
	}
}

func askOnce(ctx context.Context, address string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if at, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(at); err != nil {
			return err
		}
	}
	const begin = "HTTP/1.1 200 "
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", address); err != nil {
		return err
	}
	var got [len(begin)]byte
	if _, err := io.ReadFull(conn, got[:]); err != nil {
		return err
	}
	if string(got[:]) != begin {
		return fmt.Errorf("%w: it begins with %q", experiment.ErrAnswer, got[:])
	}
	return nil
}

// askForAll asks a server for every page in every encoding, and reads what it holds
// then.
func askForAll(ctx context.Context, url string, target *record.Target) (got trial.TaskResult, err error) {
	files, accepted := site.Pages(), encodings()
	client := &http.Client{Timeout: answerTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: clients, DisableCompression: true}}
	defer client.CloseIdleConnections()
	err = experiment.Each(len(files)*len(accepted), clients, func(i int) error {
		return ask(ctx, client, url+files[i/len(accepted)].Name, accepted[i%len(accepted)])
	})
	if err != nil {
		return got, err
	}
	held, err := target.Read()
	return trial.TaskResult{Values: map[string]float64{"rss_bytes": float64(held.RSS)}, Done: uint64(len(files) * len(accepted))}, err
}

func ask(ctx context.Context, client *http.Client, url, encoding string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept-Encoding", encoding)
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	n, err := io.Copy(io.Discard, res.Body)
	if err == nil && (res.StatusCode != http.StatusOK || n == 0) {
		err = fmt.Errorf("%w at %s: status %d, %d bytes", experiment.ErrAnswer, url, res.StatusCode, n)
	}
	return err
}
