package mqfx

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/tenants"
)

// Validate checks an effective configuration, such as that of [DefaultConfig]
// with changes, and returns everything that is wrong with it: joined errors,
// each a [backend.FieldError] under its full key. The module has done so before
// anybody sees a Config.
func (c Config) Validate() error { return c.validate() }

func (c Config) validate() error {
	errs := []error{
		oneOf("mq.backend", c.Backend, BackendMySQL, BackendMemory),
		inRange("mq.pool.max_open", c.Pool.MaxOpen, MinMaxOpen, MaxMaxOpen),
		inRange("mq.pool.max_lifetime", c.Pool.MaxLifetime, MinMaxLifetime, MaxMaxLifetime),
		inRange("mq.pool.reserve", c.Pool.Reserve, 1, mysql.MaxReserveConns),
		inRange("mq.publish.max_payload", c.Publish.MaxPayload, 1, mysql.MaxMaxPayload),
		inRange("mq.publish.max_metadata", c.Publish.MaxMetadata, 2, mysql.MaxMaxMetadata),
		inRange("mq.publish.max_batch_rows", c.Publish.MaxBatchRows, 1, mysql.MaxMaxBatchRows),
		inRange("mq.publish.max_batch_bytes", c.Publish.MaxBatchBytes, mysql.MinMaxBatchBytes, mysql.MaxMaxBatchBytes),
		inRange("mq.publish.timeout", c.Publish.Timeout, mysql.MinPublishTimeout, mysql.MaxPublishTimeout),
		inRange("mq.group_retention", c.GroupRetention, mysql.MinGroupRetention, mysql.MaxGroupRetention),
		inRange("mq.drain_timeout", c.DrainTimeout, backend.MinDuration, MaxDrainTimeout),
		oneOf("mq.log.level", c.Log.Level,
			zapcore.DebugLevel.String(), zapcore.InfoLevel.String(), zapcore.WarnLevel.String(), zapcore.ErrorLevel.String()),
		oneOf("mq.log.format", c.Log.Format, "json", "console"),
		inRange("mq.metrics.tenants", c.Metrics.Tenants, 0, backend.MaxTenantMetrics),
		c.Subscription.validate("mq.subscription", "topic"),
	}
	if c.Migrate && c.ExternalSchema {
		errs = append(errs, &backend.FieldError{
			Field: "mq.migrate", Value: "true", Rule: "mq.external_schema says that another tool makes the tables; leave one of them out",
		})
	}
	for _, topic := range slices.Sorted(maps.Keys(c.Topics)) {
		errs = append(errs, c.Topics[topic].validate("mq.topics."+topic, topic))
	}
	return errors.Join(errs...)
}

// validate leaves the rules to the backend and translates the names of its
// fields into keys.
func (s Subscription) validate(key, topic string) error {
	if s.HandlerTimeout != 0 {
		if err := inRange(key+".handler_timeout", s.HandlerTimeout, backend.MinDuration, backend.MaxDuration); err != nil {
			return err
		}
	}
	settings, err := s.settings()
	if err == nil {
		settings.Group = "group" // the handler's, checked with it
		err = settings.Validate(topic)
	}
	if field, ok := errors.AsType[*backend.FieldError](err); ok {
		renamed := *field
		renamed.Field = subscriptionKey(key, field.Field)
		return &renamed
	}
	return err
}

func subscriptionKey(key, field string) string {
	if tenant, ok := strings.CutPrefix(field, "tenant weight of "); ok {
		return key + ".tenant_weights." + strings.Trim(tenant, `"`)
	}
	if field == "topic" {
		return key
	}
	for _, group := range []string{"retry", "dead letter"} {
		if rest, ok := strings.CutPrefix(field, group+" "); ok {
			key, field = key+"."+strings.ReplaceAll(group, " ", "_"), rest
		}
	}
	return key + "." + strings.ReplaceAll(field, " ", "_")
}

func oneOf(key, value string, names ...string) error {
	if slices.Contains(names, value) {
		return nil
	}
	return &backend.FieldError{Field: key, Value: fmt.Sprintf("%.40q", value), Rule: fmt.Sprintf("want one of %q", names)}
}

func inRange[T int | time.Duration](key string, v, low, high T) error {
	if v >= low && v <= high {
		return nil
	}
	return &backend.FieldError{Field: key, Value: fmt.Sprint(v), Rule: fmt.Sprintf("want %v to %v", low, high)}
}

// Unused returns a line for every setting that this process has no use for:
// topics that none of its handlers consumes, and weights of tenants that are not
// in its set. Each may be a misspelt name, or be meant for another process that
// shares the file. Topics are those of the handlers; a process without any uses
// no subscription's settings at all, and gets no lines.
func (c Config) Unused(topics []string, set tenants.Set) []string {
	if len(topics) == 0 {
		return nil
	}
	lines := unusedWeights("mq.subscription", c.Subscription.TenantWeights, set)
	for _, topic := range slices.Sorted(maps.Keys(c.Topics)) {
		if !slices.Contains(topics, topic) {
			lines = append(lines, fmt.Sprintf("mq.topics.%s: no handler consumes this topic; %sthe handlers' are %s",
				topic, suggest(topic, topics), strings.Join(slices.Sorted(slices.Values(topics)), ", ")))
			continue
		}
		own := maps.Clone(c.Topics[topic].TenantWeights)
		maps.DeleteFunc(own, func(id tenants.ID, _ int) bool { _, general := c.Subscription.TenantWeights[id]; return general })
		lines = append(lines, unusedWeights("mq.topics."+topic, own, set)...)
	}
	return lines
}

func unusedWeights(key string, weights map[tenants.ID]int, set tenants.Set) (lines []string) {
	for _, id := range slices.Sorted(maps.Keys(weights)) {
		if !set.Contains(id) {
			lines = append(lines, fmt.Sprintf("%s.tenant_weights.%s: this process does not serve the tenant; %slist it in %s or remove the weight",
				key, id, suggest(id, set.IDs()), tenants.EnvVar))
		}
	}
	return lines
}

// suggest asks whether one of the names was meant, if one is near.
func suggest[S ~string](name S, names []S) string {
	i := slices.IndexFunc(names, func(n S) bool { return near(string(name), string(n)) })
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("did you mean %s? ", names[i])
}
