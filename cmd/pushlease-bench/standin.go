package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/pushlease/pushlease/internal/azurestandin"
)

// standinProcess is the fast storage, running.
type standinProcess struct {
	*child
	standinReady
	client *http.Client
}

// standinReady is what the role prints when it serves.
type standinReady struct {
	Connection string `json:"connection"`
	Control    string `json:"control"`
}

func standinRole(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) (err error) {
	set := flag.NewFlagSet("standin", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	latency := set.Duration("latency", 0, "")
	if err := set.Parse(args); err != nil {
		return usagef("standin: %v", err)
	}
	s, err := azurestandin.Start(ctx, *latency)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /counts", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(s.Counts()) // a caller that is gone needs no answer
	})
	mux.HandleFunc("POST /reset", func(http.ResponseWriter, *http.Request) { s.Reset() })
	mux.HandleFunc("POST /limits", func(_ http.ResponseWriter, r *http.Request) {
		var limits azurestandin.Limits
		if r.URL.Query().Get("are") == publishedLimits {
			limits = azurestandin.Published()
		}
		s.SetLimits(limits)
	})
	control, stop, err := serveLocal(ctx, mux)
	if err != nil {
		return err
	}
	defer stop()
	if err := json.NewEncoder(stdout).Encode(standinReady{Connection: s.ConnectionString(), Control: control}); err != nil {
		return fmt.Errorf("say where the stand-in is: %w", err)
	}
	untilClosed(ctx, stdin)
	return nil
}

func startStandin(ctx context.Context, latency time.Duration) (*standinProcess, error) {
	p := &standinProcess{client: &http.Client{}}
	var err error
	p.child, err = startRole(ctx, nil, &p.standinReady, "standin", "-latency", latency.String())
	return p, err
}

func (p *standinProcess) reset(ctx context.Context) error {
	return askControl(ctx, p.client, http.MethodPost, p.Control+"/reset", nil)
}

// limit has it refuse what is beyond the published limits, or nothing.
func (p *standinProcess) limit(ctx context.Context, are string) error {
	return askControl(ctx, p.client, http.MethodPost, p.Control+"/limits?are="+are, nil)
}

func (p *standinProcess) counts(ctx context.Context) (map[string]float64, error) {
	var counts map[string]float64
	err := askControl(ctx, p.client, http.MethodGet, p.Control+"/counts", &counts)
	return counts, err
}
