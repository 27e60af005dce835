package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	experiment "millrace/lab/experiment/former"
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

// semanticsFinding is what an arm does in the cases that a load does not show.
type semanticsFinding struct {
	arm      string
	stampede int    // clients that asked for one URL at once
	reached  uint64 // of these questions, how many came to the API
	right    int    // of the clients, how many got the right answer

	expiry string // what becomes of an answer that is too old
	// What is served when the API has gone: an answer that is young enough, one
	// that is too old, and one that nobody had asked for.
	young, old, unseen string
	wrong              bool // any wrong answer in all of this
}

// measureSemantics asks all arms at the same time: nothing here is a question
// of speed, and each arm has an API of its own.
func (r *cacheRun) measureSemantics(ctx context.Context) error {
	found := make([]semanticsFinding, len(r.arms))
	errs := make([]error, len(r.arms))
	var all sync.WaitGroup // of one goroutine for each arm
	for i, arm := range r.arms {
		all.Go(func() { found[i], errs[i] = r.semantics(ctx, arm) })
	}
	all.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	for i, arm := range r.arms {
		if errs[i] != nil {
			r.Note("%s was not asked about stampede, expiry and a dying API: %v", arm.name, errs[i])
			continue
		}
		r.sub = append(r.sub, found[i])
	}
	return nil
}

func (r *cacheRun) semantics(ctx context.Context, arm *cacheArm) (s semanticsFinding, err error) {
	s = semanticsFinding{arm: arm.name, stampede: r.runPlan.stampede}
	in, err := r.start(ctx, arm, upstreamSetting{delay: apiDelay, expiry: semanticExpiry})
	if err != nil {
		return s, err
	}
	stopped := false // the API, by us
	defer func() {
		stopErr := in.service.Stop()
		if in.service != in.api && !stopped {
			stopErr = errors.Join(stopErr, in.api.Stop())
		}
		err = errors.Join(err, stopErr)
	}()
	client := newChecker(in, true)
	defer client.close()
	if err := s.askStampede(ctx, in, client); err != nil {
		return s, err
	}
	if err := client.set(ctx, "delay="+semanticDelay.String()); err != nil {
		return s, err
	}
	if err := s.askExpiry(ctx, client); err != nil {
		return s, err
	}
	stopped = true
	return s, s.askDying(ctx, in, client)
}

// askStampede has many clients ask for one URL that nobody has asked for yet.
func (s *semanticsFinding) askStampede(ctx context.Context, in *runningArm, counter *checker) error {
	before, err := counter.count(ctx)
	if err != nil {
		return err
	}
	grades := make([]grade, s.stampede)
	start := make(chan struct{})
	var all sync.WaitGroup // of one goroutine for each client
	for i := range grades {
		all.Go(func() {
			client := newChecker(in, false)
			defer client.close()
			<-start
			grades[i], _, _ = client.ask(ctx, "/stampede/", 0)
		})
	}
	close(start)
	all.Wait()
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
func (s *semanticsFinding) askExpiry(ctx context.Context, client *checker) error {
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
func (s *semanticsFinding) askDying(ctx context.Context, in *runningArm, client *checker) error {
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
