// Package proxy is what of the experiment proxy is code: the PHP behind the proxies,
// WebSockets that are opened, and what becomes of a good client while others hold
// connections that do not end.
package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/load"
	"millrace/lab/load/client"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

// small is the path of the good client.
const small = "/501"

// Hooks are those of the experiment.
func Hooks(r *experiment.Run) experiment.Hooks {
	r.Right = content
	return experiment.Hooks{
		Prepare: func(context.Context) error { return preparePHP(r) },
		Tasks: map[string]experiment.Task{
			"open": open,
			"attack": func(ctx context.Context, slot trial.TaskSlot, w experiment.Workload) (trial.TaskResult, error) {
				return besiege(ctx, r, slot, w)
			},
		},
		Report: func() { report(r.Res, r.Chosen) },
	}
}

// content is what the application answers to a path, which ends in how many bytes
// that is; nil: nobody knows.
func content(path string) []byte {
	const pattern = "0123456789abcdef"
	n, err := strconv.Atoi(path[strings.LastIndexByte(path, '/')+1:])
	if err != nil {
		return nil
	}
	return bytes.Repeat([]byte(pattern), n/len(pattern)+1)[:n]
}

// script answers with as many bytes as its query says, or with the length of what
// was sent to it.
const script = `<?php
header('Content-Type: application/octet-stream');
header('Cache-Control: no-store');
if ($_SERVER['REQUEST_METHOD'] === 'POST') {
    echo strlen(file_get_contents('php://input'));
} else {
    echo str_repeat('x', (int) $_SERVER['QUERY_STRING']);
}
`

// preparePHP finds php-fpm, whose name has its version on Debian, and writes the
// script.
func preparePHP(r *experiment.Run) error {
	r.Fields["PHPRoot"], r.Fields["AsRoot"] = filepath.Join(r.Env.Work, "php-site"), ""
	if os.Geteuid() == 0 {
		r.Fields["AsRoot"] = "--allow-to-run-as-root"
	}
	exe, err := subject.Look("php-fpm", "php-fpm")
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/usr/bin"} {
		some, _ := filepath.Glob(filepath.Join(dir, "php-fpm[0-9]*")) // the pattern is right
		if len(some) > 0 && err != nil {
			exe, err = some[len(some)-1], nil
		}
	}
	if err != nil {
		r.Missing["php-fpm"] = err
	}
	r.Tools["php-fpm"] = exe
	if err = os.MkdirAll(filepath.Join(r.Fields["PHPRoot"], "php"), 0o755); err == nil {
		err = os.WriteFile(filepath.Join(r.Fields["PHPRoot"], "php", "bytes.php"), []byte(script), 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing the script: %w", err)
	}
	return nil
}

// settle is how long a server may take to end what was closed.
const settle = 200 * time.Millisecond

// open opens WebSockets, some at a time, sends one message over each and closes it.
func open(ctx context.Context, slot trial.TaskSlot, w experiment.Workload) (got trial.TaskResult, err error) {
	d, err := client.New(w.Options("ws" + strings.TrimPrefix(slot.URL, "http")))
	if err != nil {
		return got, err
	}
	defer d.Close()   //nolint:errcheck // what it has to say no longer matters
	var mu sync.Mutex // guards times
	var times load.Histogram
	one := func(int) error {
		began := time.Now()
		conn, err := d.Dial(ctx)
		if err != nil {
			return err
		}
		took := time.Since(began)
		_, err = conn.Do(ctx, 0, nil)
		mu.Lock()
		times.Record(took)
		mu.Unlock()
		return errors.Join(err, conn.Close())
	}
	if err := experiment.Each(w.Connections, w.Connections, one); err != nil { // what is done for the first time is done then
		return got, err
	}
	times = load.Histogram{}
	slot.Window(true)
	began := time.Now()
	err = experiment.Each(w.Count, w.Connections, one)
	took := time.Since(began)
	err = errors.Join(err, experiment.Sleep(ctx, settle))
	slot.Window(false)
	return trial.TaskResult{Done: uint64(w.Count), Values: map[string]float64{
		"requests_per_second": float64(w.Count) / took.Seconds(), "latency_p99_ns": float64(times.Quantile(0.99)),
	}}, err
}
