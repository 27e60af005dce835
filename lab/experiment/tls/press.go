package tls

import (
	"context"
	"fmt"
	"net/url"

	"millrace/lab/experiment"
	"millrace/lab/trial"
)

// press looks whether the page is right and has h2load ask for it, or for the path
// that is the burst's URL.
func (m *measurement) press(ctx context.Context, slot trial.TaskSlot, b experiment.H2loadBurst) (trial.TaskResult, error) {
	if err := m.look(ctx, slot.URL, !b.HTTP1); err != nil {
		return trial.TaskResult{}, err
	}
	path := b.URL
	target, err := url.JoinPath(slot.URL, path)
	if err != nil {
		return trial.TaskResult{}, fmt.Errorf("reading the server's URL: %w", err)
	}
	b.Exe, b.URL = m.h2load, target
	got, body, err := b.Run(ctx, slot)
	if least := uint64(b.Requests) * uint64(m.large); err == nil && path == experiment.LargePath && body < least {
		err = fmt.Errorf("%w: %d bytes of files of %d", experiment.ErrAnswer, body, least)
	}
	return got, err
}
