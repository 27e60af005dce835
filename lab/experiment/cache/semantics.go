package cache

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/trial"
)

const (
	// semanticExpiry is the cache's in the questions about time: short, and yet
	// longer than seven services on two cores need for two answers.
	semanticExpiry = 2 * time.Second
	// semanticWait is how long after a look an answer is old. nginx counts
	// whole seconds.
	semanticWait = semanticExpiry + 1100*time.Millisecond
	// semanticDelay is the API's while only one client asks it.
	semanticDelay = 5 * time.Millisecond
	// refreshTime is how long a cache may take to fetch anew in the background.
	refreshTime = 500 * time.Millisecond
)

// semantics is what an arm does in the cases that a load does not show.
type semantics struct {
	stampede int    // clients that asked for one URL at once
	reached  uint64 // of these questions, how many came to the API
	right    int    // of the clients, how many got the right answer

	expiry string // what becomes of an answer that is too old
	// What is served when the API has gone: an answer that is young enough, one
	// that is too old, and one that nobody had asked for.
	young, old, unseen string
	wrong              bool // any wrong answer in all of this
}

// cells are those of a table.
func (s semantics) cells() []string {
	wrong := "none"
	if s.wrong {
		wrong = "yes"
	}
	return []string{
		fmt.Sprintf("%d of %d", s.reached, s.stampede), strconv.Itoa(s.right), s.expiry,
		experiment.FirstLine(s.young), experiment.FirstLine(s.old), experiment.FirstLine(s.unseen), wrong,
	}
}

// semantics asks an arm all of this; one that cannot be asked is noted.
func (a *api) semantics(ctx context.Context, slot trial.TaskSlot, w experiment.Workload) (trial.TaskResult, error) {
	s := semantics{stampede: w.Count}
	err := a.ask(ctx, slot.Arm, &s)
	switch {
	case ctx.Err() != nil:
		return trial.TaskResult{}, ctx.Err()
	case err != nil:
		a.Note("%s was not asked about stampede, expiry and a dying API: %v", slot.Arm, err)
	default:
		a.mu.Lock()
		a.found[slot.Arm] = s
		a.mu.Unlock()
	}
	return trial.TaskResult{Done: 1}, nil
}

func (a *api) ask(ctx context.Context, arm string, s *semantics) (err error) {
	in, err := a.start(ctx, arm, setting{delay: apiDelay, expiry: semanticExpiry})
	if err != nil {
		return err
	}
	stopped := false // the API, by us
	defer func() {
		if in.front != in.api {
			err = errors.Join(err, in.front.Stop())
		}
		if !stopped {
			err = errors.Join(err, in.api.Stop())
		}
	}()
	client := newChecker(in, true)
	defer client.close()
	if err := s.askStampede(ctx, in, client); err != nil {
		return err
	}
	if err := client.set(ctx, "delay="+semanticDelay.String()); err != nil {
		return err
	}
	if err := s.askExpiry(ctx, client); err != nil {
		return err
	}
	stopped = true
	return s.askDying(ctx, in, client)
}

// askStampede has many clients ask for one URL that nobody has asked for yet.
func (s *semantics) askStampede(ctx context.Context, in *service, counter *checker) error {
	before, err := counter.count(ctx)
	if err != nil {
		return err
	}
	grades := make([]grade, s.stampede)
	_ = experiment.Each(len(grades), len(grades), func(i int) error { // it reports none
		client := newChecker(in, false)
		defer client.close()
		grades[i], _, _ = client.ask(ctx, "/stampede/", 0)
		return nil
	})
	after, err := counter.count(ctx)
	if err != nil {
		return err
	}
	s.reached = after.Requests - before.Requests
	for _, g := range grades {
		if g == gradeRight {
			s.right++
		}
		s.wrong = s.wrong || g == gradeWrong
	}
	return nil
}

// askExpiry sees whether an answer is kept, and what comes when it is too old
// and the API has another.
func (s *semantics) askExpiry(ctx context.Context, client *checker) error {
	const page = "/expiry/"
	stored := time.Now()
	if g, status, _ := client.ask(ctx, page, 0); g != gradeRight {
		s.expiry = fmt.Sprintf("no right answer at first (status %d)", status)
		s.wrong = s.wrong || g == gradeWrong
		return nil
	}
	if err := client.set(ctx, "version=1"); err != nil {
		return err
	}
	// The right answer is now the new one: an old one that is still served is
	// graded as wrong, which here only means kept.
	kept, _, _ := client.ask(ctx, page, 1)
	if time.Since(stored) > semanticExpiry {
		s.expiry = "not seen: this machine was too busy"
		return client.set(ctx, "version=0")
	}
	if err := experiment.Sleep(ctx, semanticWait); err != nil {
		return err
	}
	first, _, _ := client.ask(ctx, page, 1)
	if err := experiment.Sleep(ctx, refreshTime); err != nil {
		return err
	}
	second, _, _ := client.ask(ctx, page, 1)
	s.expiry = expiryText(kept, first, second)
	return client.set(ctx, "version=0")
}

// expiryText says what became of an answer: graded by the new one, at once, when
// the old one has expired, and a moment later.
func expiryText(kept, first, second grade) string {
	switch {
	case kept == gradeRight:
		return "nothing is kept"
	case kept != gradeWrong:
		return "not kept, and no answer"
	case first == gradeRight:
		return "fresh at once"
	case first == gradeWrong && second == gradeRight:
		return "old once, then fresh"
	case first == gradeWrong && second == gradeWrong:
		return "old still"
	}
	return "no answer when expired"
}

// askDying stops the API and asks for what is young, old and unknown.
func (s *semantics) askDying(ctx context.Context, in *service, client *checker) error {
	const page = "/dying/"
	if g, status, _ := client.ask(ctx, page, 0); g != gradeRight {
		s.young = fmt.Sprintf("no right answer while it lived (status %d)", status)
		s.wrong = s.wrong || g == gradeWrong
		return in.api.Stop()
	}
	if err := in.api.Stop(); err != nil {
		return err
	}
	show := func(page string) string {
		g, status, _ := client.ask(ctx, page, 0)
		s.wrong = s.wrong || g == gradeWrong
		return gradeText(g, status)
	}
	s.young = show(page)
	if err := experiment.Sleep(ctx, semanticWait); err != nil {
		return err
	}
	s.old = show(page)
	s.unseen = show("/unseen/")
	return nil
}

func gradeText(g grade, status int) string {
	switch g {
	case gradeRight:
		return "200, right"
	case gradeWrong:
		return "200, wrong"
	case gradeFailed:
		return fmt.Sprint(status)
	}
	return "no answer"
}
