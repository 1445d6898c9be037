package main

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pushlease/pushlease/internal/config"
)

func newAPIKeyCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "api-key",
		Short: "Make keys for the API",
	})
	cmd.AddCommand(newAPIKeyNewCommand())
	return cmd
}

func newAPIKeyNewCommand() *cobra.Command {
	var o output
	var name string
	var scopes []string
	cmd := &cobra.Command{
		Use:   "new --name NAME --scopes SCOPE,…",
		Short: "Make a key: a token for the caller, and its hash for the server",
		Long: `Makes a random token and prints it once, with the line that goes into the server's
setting api_keys (PUSHLEASE_API_KEYS). The line holds only a hash of the token.
Nothing is stored and no server is asked.

Scopes: publish (send messages), read (everything but bodies and secrets), operate
(replay, delete, enable, disable), admin (webhooks, secrets, deleting queues; implies
the others).`,
		Example: `  pushlease api-key new --name shop --scopes publish
  pushlease api-key new --name ops --scopes read,operate -o json`,
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var secret [32]byte
			_, _ = rand.Read(secret[:]) // never fails
			token := "pl_" + base64.RawURLEncoding.EncodeToString(secret[:])
			key, err := config.NewAPIKey(name, scopes, token)
			if err != nil {
				return usagef("%s; set --name and --scopes, such as --name shop --scopes publish", err)
			}
			if o.json() {
				return o.value(cmd, map[string]string{"token": token, "setting": key.Setting()})
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), `Token, shown only now; the caller sends it as Authorization: Bearer …:
  %s
Line for the server's api_keys (PUSHLEASE_API_KEYS, comma-separated):
  %s
`, token, key.Setting())
			return err
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name that tells the key apart in logs")
	cmd.Flags().StringSliceVar(&scopes, "scopes", nil, "comma-separated: "+strings.Join(config.Scopes(), ", "))
	o.addFlag(cmd)
	return cmd
}
