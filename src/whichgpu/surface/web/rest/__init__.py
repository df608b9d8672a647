"""REST endpoints, their parameters and their OpenAPI document."""
